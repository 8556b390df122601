"""The property that needs no second run: the NumPy oracle says what the tokens are."""

import functools
import json
from typing import Any

import numpy as np
from hypothesis import strategies as st

from paged_conformance.drawing import Numbers
from paged_conformance.engine.alone import Result, compare, results
from paged_conformance.engine.histories import REQUEST, SETUP, prompt, setup, spelled
from paged_conformance.engine.play import prompt_of
from paged_conformance.engine.streams import Streams, add, drain
from paged_conformance.properties import Capabilities, Property
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.parameters import parameters
from reference.transformer import Transformer, TransformerConfig


@functools.lru_cache(maxsize=4)
def _oracle(config: str, weights: str) -> Transformer:
    with np.load(weights) as arrays:
        return Transformer(TransformerConfig(**json.loads(config)), dict(arrays))


def expected(model: dict[str, Any], eos: int, prompt: list[int], params: dict[str, Any]) -> Result:
    """What the model at hand makes of a greedy request."""
    transformer = _oracle(json.dumps(model["config"], sort_keys=True), model["weights"])
    longest = len(prompt) + params["max_tokens"] + 1
    sizes: dict[str, Any] = transformer.config.cache_sizes()
    cache = KVCache(**sizes, num_blocks=longest // 8 + 4, block_size=8)
    engine = ReferenceEngine(
        transformer, cache, max_num_seqs=1, max_num_batched_tokens=longest, max_model_len=longest,
        eos_token_ids=() if eos < 0 else (eos,), watermark=0.0,
    )  # fmt: skip
    ignore_eos = params.get("ignore_eos", False)
    form = parameters(temperature=0, max_tokens=params["max_tokens"], ignore_eos=ignore_eos)
    engine.add_request("it", prompt, form)
    [group] = engine.run()
    [seq] = group.seqs
    return Result(
        list(seq.output_token_ids), None, list(seq.logprobs), None, str(seq.finish_reason)
    )


def examples(has: Capabilities) -> st.SearchStrategy[dict[str, Any]]:
    def spell(drawn: Numbers) -> dict[str, Any]:
        ignore = {"ignore_eos": drawn.yes()} if "eos" in has else {}
        params = {"max_tokens": drawn.among([1, 4, 12]), **ignore}
        specs = [prompt(drawn, has, 0) for _ in range(1 + drawn.below(4))]
        asked = [{"prompt": spec, "params": params} for spec in specs]
        return {
            "setup": setup(drawn, has, ("cache", "budget", "pool"), asked),
            "mode": {"draws": False, "samples": 1} if "modes" in has else {},
            "prompts": specs,
            "params": params,
            "pause": drawn.below(4),
        }

    return spelled(spell, SETUP + 2 * REQUEST)


def check(make: Any, example: Any) -> None:
    engine, streams = make(**example["setup"], **example["mode"]), Streams(make)
    model, params = engine.model(), example["params"]
    asked: dict[str, list[int]] = {}
    for number, spec in enumerate(example["prompts"]):
        tokens = prompt_of(spec, make.sizes, [])
        if add(engine, streams, f"r{number}", tokens, params):
            asked[f"r{number}"] = tokens
        for _ in range(example["pause"]):
            if engine.is_busy():
                streams.take(engine.step())
    drain(engine, streams)
    for name, tokens in asked.items():
        wanted = expected(model, make.sizes.get("eos", -1), tokens, params)
        compare(make, f"{name} (alone: by the oracle)", wanted, results(streams.ended[name])[0])


ORACLE = Property(
    name="the-oracles-tokens",
    sentence="Greedy tokens and log-probabilities are those of the NumPy oracle for this model.",
    invariant="I39",
    examples=examples,
    check=check,
    needs=("oracle_model",),
)
