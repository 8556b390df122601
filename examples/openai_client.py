"""Asks a server that `jax-engine serve` has started: `pip install openai`, then run this.

python examples/openai_client.py http://127.0.0.1:8000
"""

import sys

import openai


def ask(url: str) -> str:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none is needed") as client:
        model = client.models.list().data[0].id
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "What is the capital of Italy?"}],
            max_tokens=16,
            stream=True,
            extra_body={"top_k": 40},  # vLLM's fields go here
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


if __name__ == "__main__":
    print(ask(sys.argv[1]))
