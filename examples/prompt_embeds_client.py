"""Sends a prompt as embeddings to `jax-engine serve MODEL --enable-prompt-embeds`.

python examples/prompt_embeds_client.py http://127.0.0.1:8000 MODEL "The capital of France is"

It needs `pip install openai torch transformers`, and MODEL in Hugging Face's layout.
"""

import base64
import io
import sys
from typing import Any

import openai
import torch  # type: ignore[import-not-found, unused-ignore]


def complete(client: openai.OpenAI, vectors: Any) -> str:
    """Completes a tensor [tokens, width], of any floating-point dtype."""
    file = io.BytesIO()
    torch.save(vectors, file)
    given = {"prompt_embeds": base64.b64encode(file.getvalue()).decode()}
    model = client.models.list().data[0].id
    prompt: Any = None
    answer = client.completions.create(model=model, prompt=prompt, temperature=0, extra_body=given)
    return answer.choices[0].text


if __name__ == "__main__":
    from transformers import AutoModelForCausalLM, AutoTokenizer

    server, name, text = sys.argv[1:]
    ids = AutoTokenizer.from_pretrained(name)(text, return_tensors="pt").input_ids
    embed = AutoModelForCausalLM.from_pretrained(name).get_input_embeddings()
    with openai.OpenAI(base_url=f"{server}/v1", api_key="none is needed") as one:
        print(complete(one, embed(ids)[0]))
