"""Lets a model that `jax-engine serve` serves call a function of this program.

python examples/tools_client.py http://127.0.0.1:8000 "Do I need a coat in Rome?"

It needs `pip install openai` and a model whose form of calls is known (docs/serving.md).
"""

import sys
from typing import Any

import openai
from pydantic import BaseModel


class Weather(BaseModel):
    """The weather of a city, now."""

    city: str


def weather(city: str) -> str:
    return f"In {city} it is 21 degrees and sunny."


def ask(client: openai.OpenAI, question: str) -> str:
    model = client.models.list().data[0].id
    tools = [openai.pydantic_function_tool(Weather)]  # strict: arguments always conform
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        answer = client.chat.completions.parse(model=model, messages=messages, tools=tools)
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message)
        for call in message.tool_calls:
            found = weather(call.function.parsed_arguments.city)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


if __name__ == "__main__":
    with openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none is needed") as one:
        print(ask(one, sys.argv[2]))
