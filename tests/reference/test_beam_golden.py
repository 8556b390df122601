"""Beam search in the reference against that of PyTorch transformers, token for token."""

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.transformer import Transformer, TransformerConfig
from tests.golden import tiny_checkpoints as tiny

GOLDEN = json.loads(Path(tiny.__file__).with_name("beam_search.json").read_text())


@functools.cache
def transformer(name: str) -> Transformer:
    fields = TransformerConfig.__dataclass_fields__
    known = {key: value for key, value in tiny.CONFIGS[name].items() if key in fields}
    return Transformer(TransformerConfig(**known), tiny.weights(tiny.CONFIGS[name]))


def new_engine(name: str) -> ReferenceEngine:
    model = transformer(name)
    cache = KVCache(
        num_layers=model.config.num_hidden_layers,
        num_blocks=64,
        num_kv_heads=model.config.num_key_value_heads,
        block_size=4,
        head_dim=model.config.head_dim,
    )
    return ReferenceEngine(
        model, cache, max_num_seqs=64, max_num_batched_tokens=64, max_model_len=64
    )


def params(case: dict[str, Any]) -> Any:
    """The ends are stop tokens here; a request has no end-of-sequence ids of its own."""
    return SimpleNamespace(
        n=case["width"],
        best_of=None,
        max_tokens=GOLDEN["max_tokens"],
        min_tokens=0,
        stop_token_ids=case["eos_token_ids"],
        ignore_eos=False,
        seed=None,
        temperature=0.0,
        logit_bias=None,
        repetition_penalty=1.0,
        frequency_penalty=0.0,
        presence_penalty=0.0,
        use_beam_search=True,
        length_penalty=case.get("length_penalty", 1.0),
        early_stopping=case.get("early_stopping", False),
    )


@pytest.mark.parametrize("name", sorted({case["checkpoint"] for case in GOLDEN["cases"]}))
def test_hypotheses_are_those_of_transformers(name: str) -> None:
    """Scores within 1e-4, transformers' float32. (A width of 1 is greedy there, without scores.)"""
    cases = [case for case in GOLDEN["cases"] if case["checkpoint"] == name]
    engine = new_engine(name)
    for index, case in enumerate(cases):
        engine.add_request(str(index), case["prompt"], params(case))
    for group in engine.run():
        wanted = cases[int(group.request_id)]["outputs"]
        tokens = [output["tokens"] for output in wanted]
        assert [seq.output_token_ids for seq in group.seqs] == tokens, cases[int(group.request_id)]
        if wanted[0]["score"] is not None:
            scores = [output["score"] for output in wanted]
            assert [seq.score for seq in group.seqs] == pytest.approx(scores, abs=1e-4, rel=0)


def test_the_golden_has_what_it_is_for() -> None:
    """Outputs that end early and late in one search, and options that change what is found."""
    lengths = [{len(output["tokens"]) for output in case["outputs"]} for case in GOLDEN["cases"]]
    assert any(len(several) > 1 and 10 in several for several in lengths)
    for option in ("length_penalty", "early_stopping"):
        found: dict[str, set[str]] = {}
        for case in GOLDEN["cases"]:
            asked = {k: v for k, v in case.items() if k not in (option, "outputs")}
            tokens = [output["tokens"] for output in case["outputs"]]
            found.setdefault(json.dumps(asked), set()).add(json.dumps(tokens))
        assert any(len(different) > 1 for different in found.values()), option
