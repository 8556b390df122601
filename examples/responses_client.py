"""Asks `/v1/responses` of a server that `jax-engine serve` has started: `pip install openai`.

python examples/responses_client.py http://127.0.0.1:8000
"""

import json
import sys
from typing import Any

import openai

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def weather(city: str = "?") -> str:
    return f"It is sunny in {city}."


def ask(url: str, question: str = "Is it hot in Rome?") -> str:
    items: Any = [{"role": "user", "content": question}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none is needed") as client:
        model = client.models.list().data[0].id
        answer = client.responses.create(
            model=model, input=items, tools=[WEATHER], max_output_tokens=64
        )
        items += answer.output  # the server keeps nothing: all of it goes back
        for item in answer.output:
            if item.type == "function_call":
                result = weather(**json.loads(item.arguments))
                output = {"type": "function_call_output", "call_id": item.call_id, "output": result}
                items.append(output)
        items.append({"role": "user", "content": "Sum up."})
        with client.responses.stream(model=model, input=items, max_output_tokens=64) as stream:
            deltas = [event for event in stream if event.type == "response.output_text.delta"]
    return "".join(one.delta for one in deltas)


if __name__ == "__main__":
    print(ask(sys.argv[1]))
