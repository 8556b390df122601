"""Engines with a draft model: what is refused, what memory they take, and how they are started."""

import asyncio
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from jax_engine import (
    LLM,
    AsyncLLM,
    ConfigError,
    EngineArgs,
    ModelNotFoundError,
    OutOfMemoryError,
    SamplingParams,
)
from jax_engine.checks import shown
from jax_engine.models.model_loader import ModelFiles, load_model
from tests.support.byte_tokenizer import save_letter_tokenizer
from tests.support.tiny_llama import EOS, VOCAB, tiny_llama

SETTINGS: dict[str, Any] = {
    "block_size": 4, "max_model_len": 40, "max_num_seqs": 4, "skip_tokenizer_init": True,
    "max_num_batched_tokens": 32,
}  # fmt: skip
SMALL: dict[str, Any] = SETTINGS | {"num_gpu_blocks_override": 40}
PROMPTS = [[3, 4, 5, 6, 7, 8, 9], [3, 4, 5, 6, 11], [12]]
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=2),
    SamplingParams(n=3, seed=5, max_tokens=9, ignore_eos=True),
    SamplingParams(temperature=0.7, seed=9, max_tokens=20, ignore_eos=True, logit_bias={5: 1.0}),
]
BLOCK_BYTES = 2 * 2 * 4 * 8 * 4  # keys and values, 2 heads, 4 tokens, 8 numbers of float32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("models")
    tiny_llama(found / "target")
    tiny_llama(found / "draft", seed=1, num_hidden_layers=1)
    return found


def outputs(llm: LLM) -> list[Any]:
    prompts: list[Any] = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    found = llm.generate(prompts, PARAMS, use_tqdm=False)
    return [[(one.token_ids, one.logprobs) for one in output.outputs] for output in found]


def drafting(model: Path, **keys: Any) -> dict[str, Any]:
    """Settings with this draft model."""
    own = {"num_speculative_tokens": 5, "enable_adaptive_verification": False}
    return {"speculative_config": {"model": str(model), **own, **keys}}


@pytest.mark.slow
def test_it_changes_no_answer(folder: Path) -> None:
    plain = outputs(LLM(str(folder / "target"), **SMALL))
    steps = {}
    for name, keys in {
        "draft": {},
        "target": {},
        "probabilistic": {"draft_sample_method": "probabilistic"},
        "short": {"max_model_len": 12},
    }.items():
        path = folder / ("draft" if name == "draft" else "target")
        llm = LLM(str(folder / "target"), **SMALL, **drafting(path, **keys))
        assert outputs(llm) == plain, name
        stats = llm.llm_engine.stats()
        assert stats.num_free_blocks == stats.num_blocks
        steps[name] = stats.num_steps
    assert steps["probabilistic"] < steps["target"] < steps["short"] <= steps["draft"] < 30


@pytest.mark.slow
def test_the_target_may_get_other_weights(folder: Path, tmp_path: Path) -> None:
    """The draft's are then those of another model, and the answers the new one's."""
    path, _ = tiny_llama(tmp_path / "new", seed=5)
    llm = LLM(str(folder / "target"), **SMALL, **drafting(folder / "target"))
    before = outputs(llm)
    assert llm.reset_prefix_cache()
    llm.llm_engine.worker.set_weights(load_model(str(path)))
    assert outputs(llm) == outputs(LLM(str(path), **SMALL)) != before


@pytest.mark.parametrize(("own", "engine"), [(True, False), (False, True), (None, True)])
@pytest.mark.slow
def test_it_may_run_eagerly(folder: Path, own: bool | None, engine: bool) -> None:
    settings = SMALL | drafting(folder / "draft", enforce_eager=own)
    llm = LLM(str(folder / "target"), **settings, enforce_eager=engine, load_format="dummy")
    draft: Any = llm.llm_engine._draft
    assert draft.runner.steps.enforce_eager is (engine if own is None else own)
    worker: Any = llm.llm_engine.worker
    assert worker.steps.enforce_eager is engine


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "cache"), [("bfloat16", "auto"), ("float32", "int8")])
def test_other_numbers(folder: Path, dtype: Any, cache: Any) -> None:
    kind = {"dtype": dtype, "kv_cache_dtype": cache}
    plain = outputs(LLM(str(folder / "target"), **SMALL, **kind))
    llm = LLM(str(folder / "target"), **SMALL, **kind, **drafting(folder / "target"))
    assert outputs(llm) == plain
    assert llm.llm_engine.stats().num_steps < 20
    w8a8 = drafting(folder / "draft", quantization="w8a8")
    assert outputs(LLM(str(folder / "target"), **SMALL, **kind, **w8a8)) == plain


@pytest.mark.slow
def test_its_blocks_are_part_of_the_memory(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """3 layers cost what 2 and 1 cost, and what 4 sequences of 5 guesses take of scratch blocks."""
    scratch = 4 * 2
    for blocks in (11, 30):
        given = (3 * blocks + scratch) * BLOCK_BYTES
        settings = SETTINGS | drafting(folder / "draft")
        caplog.clear()
        with caplog.at_level(logging.INFO, "jax_engine"):
            llm = LLM(str(folder / "target"), **settings, kv_cache_memory_bytes=given + 100)
        assert llm.llm_engine.stats().num_blocks == blocks
        assert "with those of the draft model" in caplog.text
        assert llm.llm_engine.scheduler.block_manager.num_cpu_blocks == 2 * blocks
        with pytest.raises(OutOfMemoryError, match="max_model_len 40 needs 11 KV blocks"):
            LLM(
                str(folder / "target"),
                **settings,
                kv_cache_memory_bytes=(3 * 11 + scratch) * BLOCK_BYTES - 1,
            )
    swap = 5.5 * 2 * BLOCK_BYTES / 2**30  # only the target's are swapped
    llm = LLM(str(folder / "target"), **settings, num_gpu_blocks_override=30, swap_space=swap)
    assert llm.llm_engine.scheduler.block_manager.num_cpu_blocks == 5
    alone = LLM(str(folder / "target"), **SETTINGS, kv_cache_memory_bytes=60 * BLOCK_BYTES)
    assert alone.llm_engine.stats().num_blocks == 30


@pytest.mark.slow
def test_a_warm_up_compiles_its_steps(folder: Path) -> None:
    llm = LLM(str(folder / "target"), warmup=True, **SMALL, **drafting(folder / "draft"))
    draft: Any = llm.llm_engine._draft
    known = draft.runner.steps.compiled_shapes()
    outputs(llm)
    edits = [one for one in draft.runner.steps.compiled_shapes() if one not in known]
    assert len(known) >= 10 and all(one.num_bias for one in edits)


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> str:
    """Why; the target's weights must not have been read."""

    def load(files: ModelFiles) -> Any:
        raise AssertionError("weights are read")

    monkeypatch.setattr(ModelFiles, "load", load)
    with pytest.raises(ConfigError, match=r"^speculative_config: ") as error:
        LLM(str(folder / "target"), **(SMALL | settings))
    return str(error.value).removeprefix("speculative_config: ")


def test_what_cannot_be_a_draft_is_refused_by_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = tmp_path / "scores"
    shutil.copytree(folder / "draft", scores)
    raw = json.loads((scores / "config.json").read_text())
    raw["architectures"] = ["LlamaForSequenceClassification"]
    (scores / "config.json").write_text(json.dumps(raw))
    unknown = tmp_path / "unknown"
    shutil.copytree(folder / "draft", unknown)
    raw["architectures"] = ["MambaForCausalLM"]
    (unknown / "config.json").write_text(json.dumps(raw))
    why = refused(folder, monkeypatch, **drafting(scores), load_format="dummy")
    head = "which has a head for scores (classify)"
    assert why == f"model must generate text, got {shown(str(scores))}, {head}"
    why = refused(folder, monkeypatch, **drafting(unknown))
    assert why.startswith(f"model {shown(str(unknown))}: ") and "MambaForCausalLM" in why
    why = refused(folder, monkeypatch, **drafting(folder / "draft", max_model_len=65))
    assert "max_model_len must be between 1 and this model's 64 positions" in why
    assert why.endswith("got 65.") and why.startswith(f"model {shown(str(folder / 'draft'))}: ")
    why = refused(folder, monkeypatch, **drafting(folder / "draft", quantization="marlin"))
    assert "quantization" in why
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        LLM(str(folder / "target"), **SMALL, **drafting(tmp_path / "nowhere"))


@pytest.mark.slow
def test_vocabularies_are_compared_by_their_tokens(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their number does not count. A draft without a tokenizer is made for the target's."""
    target, same, other = tmp_path / "target", tmp_path / "same", tmp_path / "other"
    for path, name in ((target, "target"), (same, "draft"), (other, "draft")):
        shutil.copytree(folder / name, path)
    save_letter_tokenizer(target, VOCAB, EOS)
    save_letter_tokenizer(same, VOCAB, EOS)
    save_letter_tokenizer(other, VOCAB, 5)
    settings = {**SMALL, "skip_tokenizer_init": False}
    plain = outputs(LLM(str(target), **settings))
    for path, translates in ((same, False), (folder / "draft", False), (other, True)):
        llm = LLM(str(target), **settings, **drafting(path, num_speculative_tokens=2))
        draft = llm.llm_engine._draft
        assert draft is not None and bool(draft.tokenizers) is translates
        assert outputs(llm) == plain, path
    backend = json.loads((other / "tokenizer.json").read_text())
    backend["decoder"] = None  # texts are words and spaces, and no bytes
    (other / "tokenizer.json").write_text(json.dumps(backend))
    why = refused(tmp_path, monkeypatch, skip_tokenizer_init=False, **drafting(other))
    assert why.startswith(f"model must have the target's vocabulary (31 tokens), got '{other}'")
    assert "31 tokens, 29 of them the same), and the draft model has a tokenizer" in why


@pytest.mark.slow
def test_async_llm_starts_one(folder: Path) -> None:
    """It starts in the engine's process, from a mapping with the model's path."""
    plain = outputs(LLM(str(folder / "target"), **SMALL))

    async def answer() -> list[tuple[Any, Any]]:
        llm = AsyncLLM(str(folder / "target"), **SMALL, **drafting(folder / "target"))
        try:
            prompt: Any = {"prompt_token_ids": PROMPTS[0]}
            async for output in llm.generate(prompt, PARAMS[0], request_id="r"):
                last = output
        finally:
            llm.shutdown()
        assert last.metrics is not None and last.metrics.num_accepted_tokens == 9
        return [(one.token_ids, one.logprobs) for one in last.outputs]

    assert asyncio.run(answer()) == plain[0]


def test_flags_name_one() -> None:
    import argparse

    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    given = {"model": "org/small", "num_speculative_tokens": 5}
    for line in (
        ["--spec-model", "org/small", "--spec-tokens", "5"],
        ["--speculative-config", json.dumps(given)],
    ):
        config = EngineArgs.from_cli_args(parser.parse_args(line)).create_engine_config()
        found = config.speculative_config
        assert found is not None and found.method == "draft_model"
        assert (found.model, found.num_speculative_tokens) == ("org/small", 5)


@pytest.mark.slow
@pytest.mark.model
def test_the_default_model_drafts_for_itself(smollm2_path: Path) -> None:
    """On real text, greedy: all is right, in as many steps as that takes."""
    settings: dict[str, Any] = {"max_model_len": 128, "num_gpu_blocks_override": 16}
    params = SamplingParams(temperature=0.0, max_tokens=31, ignore_eos=True, logprobs=0)
    prompt = "The capital of France is"
    found = {}
    for name, keys in (("plain", {}), ("draft", drafting(smollm2_path))):
        llm = LLM(str(smollm2_path), **settings, **keys)
        [output] = llm.generate([prompt], params, use_tqdm=False)
        found[name] = output.outputs[0].token_ids, output.outputs[0].logprobs
    assert found["plain"] == found["draft"]
    assert llm.llm_engine.stats().num_steps == 6  # the prompt's, and five of six tokens each
