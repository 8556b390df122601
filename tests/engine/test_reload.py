"""Weights that are read while the engine runs: `collective_rpc`, as vLLM's programs call it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_engine import ConfigError, SamplingParams, WeightsError
from jax_engine.compat.stand_ins import LLM
from jax_engine.config.engine_config import EngineConfig
from jax_engine.engine.startup.reload import StoredWeights, reload_weights
from tests.support.tiny_encoders import tiny_encoder
from tests.support.tiny_llama import tiny_llama

PROMPT: Any = {"prompt_token_ids": [5, 9, 2, 7] * 10}
SETTINGS: dict[str, Any] = {"skip_tokenizer_init": True, "max_num_seqs": 2, "block_size": 8}
AUTO = ({"load_config": {"load_format": "auto"}},)


def answer(llm: LLM) -> tuple[list[int], float]:
    params = SamplingParams(temperature=0, max_tokens=6, logprobs=0)
    (output,) = llm.generate(PROMPT, params, use_tqdm=False)
    assert output.outputs[0].cumulative_logprob is not None
    return list(output.outputs[0].token_ids), output.outputs[0].cumulative_logprob


def scaled(folder: Path, factor: float) -> None:
    """Writes other weights of the same shapes."""
    file = folder / "model.safetensors"
    tensors = {name: one * np.float32(factor) for name, one in load_file(file).items()}
    save_file(tensors, file)


def test_real_weights_behind_dummy_ones(tmp_path: Path) -> None:
    model = str(tiny_llama(tmp_path / "a")[0])
    expected = answer(LLM(model, **SETTINGS))
    llm = LLM(model, load_format="dummy", **SETTINGS)
    before = answer(llm)
    assert llm.collective_rpc("reload_weights") == [None]
    assert answer(llm) == before  # dummy ones again: from the same seed
    assert llm.collective_rpc("update_config", args=AUTO) == [None]
    assert answer(llm) == before
    assert llm.collective_rpc("reload_weights", timeout=1.0) == [None]
    assert answer(llm) == expected != before


def test_changed_files_are_read_and_cached_blocks_forgotten(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "a")[0]
    llm = LLM(str(folder), **SETTINGS)
    before = answer(llm)
    scaled(folder, 0.5)
    expected = answer(LLM(str(folder), **SETTINGS))
    assert answer(llm) == before != expected
    llm.collective_rpc("reload_weights")
    assert answer(llm) == expected


def test_after_an_error_the_old_weights_are_used(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "a")[0]
    llm = LLM(str(folder), **SETTINGS)
    before, whole = answer(llm), (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:1000])
    with pytest.raises(WeightsError):
        llm.collective_rpc("reload_weights")
    assert answer(llm) == before


def test_weights_of_other_shapes_are_refused(tmp_path: Path) -> None:
    folder, other = tiny_llama(tmp_path / "a")[0], tiny_llama(tmp_path / "b", hidden_size=24)[0]
    llm = LLM(str(folder), **SETTINGS)
    before = answer(llm)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((other / name).read_bytes())
    with pytest.raises(ConfigError, match="have other shapes or formats"):
        llm.collective_rpc("reload_weights")
    assert answer(llm) == before


def test_not_while_requests_run(tmp_path: Path) -> None:
    llm = LLM(str(tiny_llama(tmp_path / "a")[0]), **SETTINGS)
    llm.llm_engine.add_request("one", PROMPT, SamplingParams(max_tokens=4))
    with pytest.raises(ConfigError, match="an engine without requests"):
        llm.collective_rpc("reload_weights")
    while llm.llm_engine.has_unfinished_requests():
        llm.llm_engine.step()
    llm.collective_rpc("reload_weights")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("sleep",), "method must be 'reload_weights' or 'update_config', got 'sleep'"),
        ((len,), "method must be 'reload_weights' or 'update_config'"),
        (("reload_weights", None, (1,)), r"reload_weights takes no arguments here, got \[1\]"),
        (("reload_weights", None, (), {"weights_path": "x"}), "takes no arguments here"),
        (("update_config",), "update_config takes .*load_format.* alone"),
        (("update_config", None, ({"load_config": {}},)), "update_config takes"),
        (("update_config", None, (AUTO[0] | {"model_config": 1},)), "got .*model_config"),
        (("update_config", None, AUTO * 2), "update_config takes"),
        (("update_config", None, ({"load_config": {"load_format": "x"}},)), "load_format must be"),
    ],
)
def test_what_is_no_method(given: tuple[Any, ...], words: str, one: LLM) -> None:
    with pytest.raises(ConfigError, match=words):
        one.collective_rpc(*given)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    folder = tiny_llama(tmp_path_factory.mktemp("one") / "a")[0]
    return LLM(str(folder), load_format="dummy", **SETTINGS)


def test_what_cannot_be_reloaded(tmp_path: Path) -> None:
    encoder = LLM(str(tiny_encoder(tmp_path / "b")[0]), skip_tokenizer_init=True)
    with pytest.raises(ConfigError, match="a model that generates, got BertModel"):
        encoder.collective_rpc("reload_weights")
    kept = LLM(str(tiny_llama(tmp_path / "a")[0]), kv_cache_dir=str(tmp_path / "kv"), **SETTINGS)
    with pytest.raises(ConfigError, match="needs kv_cache_dir=None"):
        kept.collective_rpc("reload_weights")


@pytest.mark.parametrize(("head", "is_encoder"), [(object(), False), (None, True)])
def test_what_only_reads_is_not_reloaded(head: object, is_encoder: bool) -> None:
    """It would have new weights, and the pooling head that was made of the old ones."""
    spec = SimpleNamespace(is_encoder=is_encoder)
    model = SimpleNamespace(architecture="Reader", spec=spec)
    engine: Any = SimpleNamespace(config=EngineConfig(model="m"), head=head, model_config=model)
    with pytest.raises(ConfigError, match="needs a model that generates, got Reader"):
        reload_weights(engine)


def with_worker(set_weights: Any, **changes: Any) -> tuple[Any, list[str]]:
    """An engine of a sequence length of 33, and how often its worker was told to recover."""
    told: list[str] = []
    worker = SimpleNamespace(set_weights=set_weights, recover=lambda: told.append("recover"))
    engine = SimpleNamespace(
        config=EngineConfig(model="m", **changes), head=None, worker=worker, max_model_len=33,
        model_config=SimpleNamespace(spec=SimpleNamespace(is_encoder=False)),
        has_unfinished_requests=lambda: False, reset_prefix_cache=lambda: True,
    )  # fmt: skip
    return engine, told


@pytest.mark.parametrize(("length", "given"), [(-1, 33), (20, 20), (None, None)])
def test_the_longest_sequence_is_not_looked_for_again(
    length: int | None, given: int | None
) -> None:
    weights: list[StoredWeights] = []
    engine, told = with_worker(weights.append, max_model_len=length)
    reload_weights(engine)
    assert [one.config.max_model_len for one in weights] == [given] and not told


def test_a_worker_recovers_from_weights_that_it_refused() -> None:
    """A process of the model answers nothing else until then."""

    def refuse(_: StoredWeights) -> None:
        raise WeightsError("too few")

    engine, told = with_worker(refuse)
    with pytest.raises(WeightsError, match="too few"):
        reload_weights(engine)
    assert told == ["recover"]


def test_weights_stay_where_the_cache_cannot_be_emptied() -> None:
    engine, _ = with_worker(lambda _: pytest.fail("the cache has states of the old weights"))
    engine.reset_prefix_cache = lambda: False
    with pytest.raises(ConfigError, match="needs an engine without requests"):
        reload_weights(engine)


def test_by_keyword(one: LLM) -> None:
    one.collective_rpc("update_config", kwargs={"overrides": AUTO[0]})
    assert one.llm_engine.config.load_format == "auto"
    loaded = StoredWeights(one.llm_engine.config)()
    assert loaded.num_parameters > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"distributed_executor_backend": "mp"}, {"pipeline_parallel_size": 2}]
)
def test_other_processes_read_their_own(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "a")[0]
    expected = answer(LLM(str(folder), **SETTINGS))
    llm = LLM(str(folder), load_format="dummy", **SETTINGS, **settings)
    before, whole = answer(llm), (folder / "model.safetensors").read_bytes()
    llm.collective_rpc("update_config", args=AUTO)
    (folder / "model.safetensors").write_bytes(whole[:1000])
    with pytest.raises(WeightsError):
        llm.collective_rpc("reload_weights")
    assert answer(llm) == before != expected
    (folder / "model.safetensors").write_bytes(whole)
    assert len(llm.collective_rpc("reload_weights")) == settings.get("pipeline_parallel_size", 1)
    assert answer(llm) == expected
