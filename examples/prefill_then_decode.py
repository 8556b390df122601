"""One process computes a prompt, another one decodes behind it: run it twice, with one folder.

python examples/prefill_then_decode.py prefill /tmp/kv
python examples/prefill_then_decode.py decode /tmp/kv
"""

import json
import sys

from jax_engine import LLM, SamplingParams

PROMPT = "Once upon a time, there was a little robot who lived in a house by the sea. " * 4


def run(role: str, folder: str, model: str | None = None) -> dict[str, object]:
    llm = LLM(model, kv_cache_dir=folder)
    max_tokens = 1 if role == "prefill" else 24
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, logprobs=0, ignore_eos=True)
    (output,) = llm.generate(PROMPT, params, use_tqdm=False)
    answer = output.outputs[0]
    ids, each = answer.token_ids, answer.logprobs or []
    logprobs = [one[token].logprob for token, one in zip(ids, each, strict=True)]
    return {"found": output.num_cached_tokens, "ids": ids, "logprobs": logprobs}


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])))
