"""Models in PyTorch's pickles: the same weights and tokens as their twins in safetensors."""

import json
import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_engine import LLM, SamplingParams
from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.checkpoints.resolve import resolve_model
from jax_engine.models.checkpoints.weight_layouts import PYTORCH, chosen_files
from jax_engine.models.model_loader import load_model, open_model
from tests.golden.families.checkpoints import cases, tensors_of
from tests.golden.families.first_cases import FIRST
from tests.golden.families.parity import write
from tests.models.pytorch_files import write_pytorch, write_pytorch_model
from tests.models.test_weight_files import Hub
from tests.support.devices import for_cpu_kernels

CASES = cases()
OPT = CASES["opt"]
SMALL: dict[str, Any] = {
    "skip_tokenizer_init": True, "max_model_len": 40, "max_num_seqs": 4, "block_size": 8,
    "num_gpu_blocks_override": 40, "dtype": "float32",
}  # fmt: skip


def write_opt(folder: Path, num_shards: int = 1) -> Path:
    return write_pytorch_model(folder, OPT["config"], tensors_of(OPT), num_shards)


def tokens_of(path: Path, **settings: Any) -> list[int]:
    llm = LLM(str(path), **SMALL, **settings)
    greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    (output,) = llm.generate({"prompt_token_ids": [3, 4, 5, 6]}, greedy, use_tqdm=False)
    return list(output.outputs[0].token_ids)


@pytest.fixture
def twin(tmp_path: Path) -> Path:
    (tmp_path / "twin").mkdir()
    write(OPT, tmp_path / "twin")
    return tmp_path / "twin"


def test_tensors_of_every_family_are_those_of_the_twin(tmp_path: Path) -> None:
    """Names and numbers; what becomes of them does not depend on the files."""
    for case in FIRST:
        tensors = tensors_of(CASES[case])
        path = write_pytorch_model(tmp_path / case, CASES[case]["config"], tensors)
        open_model(str(path))
        source = FilesSource(path)
        assert {*source.names()} == tensors.keys()
        for name, one in tensors.items():
            np.testing.assert_array_equal(source.raw(name), one)
            assert source.dtype(name) == "F32" and source.shape(name) == one.shape


@pytest.mark.parametrize("num_shards", [1, 3])
def test_tokens_are_those_of_the_twin(num_shards: int, twin: Path, tmp_path: Path) -> None:
    path = write_opt(tmp_path / "model", num_shards)
    found, expected = (
        [np.asarray(leaf) for leaf in jax.tree.leaves(load_model(str(one)).params)]
        for one in (path, twin)
    )
    assert all(map(np.array_equal, found, expected))
    assert tokens_of(path) == tokens_of(twin)


@pytest.mark.slow
@for_cpu_kernels("they meet by a kernel for a CPU")
@pytest.mark.usefixtures("patient_runners")
@pytest.mark.parametrize("way", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_processes_read_their_parts(way: str, twin: Path, tmp_path: Path) -> None:
    path = write_opt(tmp_path / "model", num_shards=2)
    assert tokens_of(path, **{way: 2}) == tokens_of(twin)


def test_which_files_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Safetensors before pickles, as vLLM; `load_format` names one kind."""
    tensors = tensors_of(OPT)
    others = {name: one + 1 for name, one in tensors.items()}
    name = "model.decoder.final_layer_norm.bias"
    path = write_opt(tmp_path)
    save_file(others, path / "model.safetensors")
    for load_format, expected in (
        ("auto", others), ("hf", others), ("safetensors", others), ("pt", tensors),
    ):  # fmt: skip
        source = FilesSource(path, load_format)
        np.testing.assert_array_equal(source.raw(name), expected[name])
    (path / "model.safetensors").unlink()
    np.testing.assert_array_equal(FilesSource(path).raw(name), tensors[name])
    with pytest.raises(WeightsError, match=r"only pytorch_model\.bin: give load_format='pt'"):
        open_model(str(path), load_format="safetensors")
    with pytest.raises(WeightsError, match=r"only pytorch_model\.bin: give load_format='pt'"):
        open_model(str(path), load_format="mistral")
    (path / "pytorch_model.bin").unlink()
    save_file(others, path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"only model\.safetensors: give load_format='safetens"):
        open_model(str(path), load_format="pt")
    with pytest.raises(ConfigError, match=r"load_format='pt', but .* is a GGUF file"):
        open_model(str(path / "config.json"), load_format="pt")
    with caplog.at_level(logging.WARNING):
        write_pytorch(path / "training_args.bin", {})
        open_model(str(path))
    assert "training_args.bin (the state of a training run)" in caplog.text


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["model.pt"], ["model.pt"]),
        (["pytorch_model.bin", "model.pt"], ["pytorch_model.bin"]),
        (["weights.bin", "model.pt", "a.pth"], ["weights.bin"]),
        (["a.pth", "optimizer.pth", "rng_state.pth"], ["a.pth"]),
        (["pytorch_model-00001-of-00001.bin"], ["pytorch_model-00001-of-00001.bin"]),
        (["pytorch_model-00001-of-00002.bin"], "not clear which"),
        (["a.bin", "b.bin"], r"not clear which of a\.bin, b\.bin"),
        (["adapter_model.bin"], r"only adapter_model\.bin \(a LoRA adapter"),
    ],
)
def test_the_choice_by_names(names: list[str], expected: list[str] | str) -> None:
    if isinstance(expected, list):
        assert chosen_files(names, None, "here", PYTORCH) == expected
        return
    with pytest.raises(WeightsError, match=expected):
        chosen_files(names, None, "here", PYTORCH)


def test_shards_that_do_not_fit_their_index(tmp_path: Path) -> None:
    path = write_opt(tmp_path, num_shards=2)
    index = path / "pytorch_model.bin.index.json"
    places = json.loads(index.read_text())["weight_map"]
    (path / "pytorch_model-00002-of-00002.bin").rename(path / "hidden")
    with pytest.raises(WeightsError, match=r"1 of 2 shards .*pytorch_model\.bin\.index\.json"):
        open_model(str(path))
    (path / "hidden").rename(path / "pytorch_model-00002-of-00002.bin")
    first = next(iter(places))
    index.write_text(json.dumps({"weight_map": places | {first: max(places.values())}}))
    with pytest.raises(WeightsError, match=f"for tensor {first}, which is not in it"):
        open_model(str(path))
    index.write_text(json.dumps({"weight_map": dict.fromkeys(places, "../x.bin")}))
    with pytest.raises(WeightsError, match=r"files of its own directory, got '\.\./x\.bin'"):
        open_model(str(path))
    index.unlink()
    open_model(str(path))
    write_pytorch(path / max(places.values()), tensors_of(OPT))
    with pytest.raises(WeightsError, match=r"in pytorch_model-00001.* and in pytorch_model-0000"):
        open_model(str(path))


def test_a_damaged_or_hostile_file_of_a_model_is_named(tmp_path: Path) -> None:
    file = write_opt(tmp_path) / "pytorch_model.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(WeightsError, match=f"{file} is no PyTorch file"):
        load_model(str(tmp_path))
    file.write_bytes(whole.replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_vX"))
    with pytest.raises(WeightsError, match=f"{file} is no PyTorch file .*checksum"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("num_shards", [1, 2])
def test_downloads_take_pickles_where_there_is_nothing_else(
    num_shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_opt(tmp_path / "hub", num_shards)
    weights = {one.name for one in source.iterdir()}
    write_pytorch(source / "training_args.bin", {})
    (source / "flax_model.msgpack").write_text("")
    hub = Hub(source, tmp_path / "cache", monkeypatch)
    resolve_model("owner/name")
    assert hub.fetched == weights
    (source / "model.safetensors").write_text("")
    hub.fetched.clear()
    resolve_model("owner/name")
    assert hub.fetched == {"config.json", "model.safetensors"}
    hub.fetched.clear()
    resolve_model("owner/name", load_format="pt")
    assert hub.fetched == weights


def test_downloads_take_mistral_s_files_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "hub"
    source.mkdir()
    own = {"params.json", "consolidated.safetensors", "tekken.json", "tokenizer.model.v3"}
    theirs = {"config.json", "model.safetensors", "tokenizer.json"}
    for name in own | theirs:
        (source / name).write_text("{}")
    hub = Hub(source, tmp_path / "cache", monkeypatch)
    for load_format, left in (
        ("auto", "model.safetensors"),
        ("safetensors", "consolidated.safetensors"),
    ):
        hub.fetched.clear()
        resolve_model("owner/name", load_format=load_format)
        assert hub.fetched == (own | theirs) - {left}
    for name in theirs:
        (source / name).unlink()
    hub.fetched.clear()
    resolve_model("owner/name")
    assert hub.fetched == own
