"""openai-agents: its agents call a tool and get an answer, by both of its kinds of models."""

import asyncio
from typing import Any, Literal

import agents
import openai
import pytest
from weather import QUESTION, Weather

agents.set_tracing_disabled(True)  # it would be sent to OpenAI
MODELS = [agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel]


@pytest.fixture
def asked() -> list[Weather]:
    """What the tool is called with."""
    return []


def weather_agent(base_url: str, kind: Any, asked: list[Weather], **more: Any) -> Any:
    @agents.function_tool
    def weather(city: Literal["Paris", "Rome"], days: Literal[1, 2, 3]) -> str:
        """The weather of a city."""
        asked.append(Weather(city=city, days=days))
        return f"It is sunny in {city}."

    client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    settings = agents.ModelSettings(
        temperature=0, max_tokens=80, tool_choice="required", parallel_tool_calls=False
    )
    return agents.Agent(
        name="Weather", instructions="Be brief.", tools=[weather], model_settings=settings,
        model=kind(model="smollm2", openai_client=client), **more,
    )  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_a_tool_is_called_and_its_result_is_told(
    base_url: str, kind: Any, asked: list[Weather]
) -> None:
    """Once it has been called, the agent lets the model choose, and it says something."""

    async def run() -> Any:
        agent = weather_agent(base_url, kind, asked)
        return await agents.Runner.run(agent, QUESTION, max_turns=3)

    result = asyncio.run(run())
    assert len(asked) == 1 and result.final_output
    kinds = [one.type for one in result.new_items]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert result.context_wrapper.usage.requests == 2


@pytest.mark.parametrize("kind", MODELS)
def test_a_tool_is_called_in_a_stream(base_url: str, kind: Any, asked: list[Weather]) -> None:
    async def run() -> tuple[Any, list[Any]]:
        agent = weather_agent(base_url, kind, asked, tool_use_behavior="stop_on_first_tool")
        result = agents.Runner.run_streamed(agent, QUESTION, max_turns=2)
        return result, [one async for one in result.stream_events()]

    result, events = asyncio.run(run())
    (question,) = asked
    assert result.final_output == f"It is sunny in {question.city}."
    names = [one.name for one in events if one.type == "run_item_stream_event"]
    assert names == ["tool_called", "tool_output"]
    raw = [one.data for one in events if one.type == "raw_response_event"]
    deltas = [one.delta for one in raw if one.type == "response.function_call_arguments.delta"]
    assert Weather.model_validate_json("".join(deltas)) == question
