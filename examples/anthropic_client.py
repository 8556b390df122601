"""Asks `/v1/messages` of a server that `jax-engine serve` has started: `pip install anthropic`.

python examples/anthropic_client.py http://127.0.0.1:8000 SmolLM2-135M-Instruct
"""

import sys

import anthropic


def ask(url: str, model: str) -> str:
    with (
        anthropic.Anthropic(base_url=url, api_key="none is needed") as client,
        client.messages.stream(
            model=model,
            max_tokens=32,
            system="Be brief.",
            messages=[{"role": "user", "content": "What is the capital of Italy?"}],
        ) as stream,
    ):
        return "".join(stream.text_stream)


if __name__ == "__main__":
    print(ask(*sys.argv[1:]))
