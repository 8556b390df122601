"""LiteLLM, which speaks to any server that is like OpenAI's."""

import asyncio
import json

import litellm
from weather import QUESTION, Weather, conforms

ASKED = [{"role": "user", "content": "What is the capital of France?"}]


def test_a_chat_at_once_and_as_a_stream(base_url: str) -> None:
    options = {"model": "hosted_vllm/smollm2", "api_base": base_url, "messages": ASKED}
    options |= {"temperature": 0.0, "max_tokens": 12}
    whole = litellm.completion(**options)
    text = whole.choices[0].message.content
    assert "Paris" in text and whole.usage.completion_tokens <= 12
    chunks = list(litellm.completion(**options, stream=True))
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == text
    later = asyncio.run(litellm.acompletion(**options, top_k=5))
    assert later.choices[0].message.content == text


def test_a_completion_and_an_embedding(base_url: str) -> None:
    options = {"model": "text-completion-openai/smollm2", "api_base": base_url, "api_key": "none"}
    found = litellm.text_completion(
        **options, prompt="The capital of France is", temperature=0.0, max_tokens=4
    )
    assert "Paris" in found.choices[0].text
    vectors = litellm.embedding(model="hosted_vllm/smollm2", api_base=base_url, input=["a", "b"])
    assert [len(one["embedding"]) for one in vectors.data] == [576, 576]


def test_a_tool_is_called(base_url: str) -> None:
    tool = {"name": "weather", "parameters": Weather.model_json_schema()}
    options = {"model": "hosted_vllm/smollm2", "api_base": base_url, "temperature": 0.0}
    options |= {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 80}
    options |= {"tools": [{"type": "function", "function": tool}], "tool_choice": "required"}
    options |= {"parallel_tool_calls": False}
    (call,) = litellm.completion(**options).choices[0].message.tool_calls
    assert call.function.name == "weather" and conforms(json.loads(call.function.arguments))
    chunks = list(litellm.completion(**options, stream=True))
    built = litellm.stream_chunk_builder(chunks).choices[0]
    assert built.finish_reason == "tool_calls" and len(chunks) > 2
    assert built.message.tool_calls[0].function.arguments == call.function.arguments


def test_an_error_has_its_type(base_url: str) -> None:
    options = {"model": "hosted_vllm/smollm2", "api_base": base_url, "messages": ASKED}
    try:
        litellm.completion(**options, temperature=-1.0, num_retries=0)
    except litellm.BadRequestError as error:
        assert "temperature must be in" in str(error)
    else:
        raise AssertionError("no error")
