"""Which files of a directory or of a hub's listing are read as weights, and what is left out."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_engine.errors import ModelNotFoundError, WeightsError
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.checkpoints.resolve import HubOptions, resolve_model
from jax_engine.models.checkpoints.weight_layouts import INDEX, WHOLE, chosen_files
from jax_engine.models.model_loader import open_model
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint

CONFIG = tiny.CONFIGS["plain"]
NAME = "model.layers.1.self_attn.k_proj.weight"
TRUE = tiny.weights(CONFIG)[NAME]
STALE = {NAME: np.full_like(TRUE, 7.0)}


def value_of(directory: Path, name: str = NAME) -> np.ndarray:
    source = FilesSource(directory)
    out = np.empty(source.shape(name), np.float32)
    source.read_into(name, out)
    return out


@pytest.mark.parametrize(
    ("stray", "what"),
    [
        ("adapter_model.safetensors", "LoRA adapter: merge it"),
        ("consolidated.safetensors", "Mistral's own code"),
        ("consolidated-00001-of-00002.safetensors", "Mistral's own code"),
        ("value_head.safetensors", "value head"),
        ("v_head.safetensors", "value head"),
        ("optimizer.safetensors", "training run"),
        ("model.fp16.safetensors", "neither the index nor a standard name"),
        ("a.safetensors", "neither the index nor a standard name"),
        ("zzz.safetensors", "neither the index nor a standard name"),
        ("model-00001-of-00009.safetensors", "neither the index nor a standard name"),
        ("original/consolidated.safetensors", "original/ (files of Meta's own code"),
    ],
)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_a_stray_file_is_named_and_not_read(
    stray: str, what: str, num_shards: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its names come before and after those of the model's, and its tensors are the model's."""
    directory = write_checkpoint(tmp_path, CONFIG, num_shards=num_shards)
    (directory / stray).parent.mkdir(exist_ok=True)
    save_file(STALE | {"another": np.ones(3)}, directory / stray)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(value_of(directory), TRUE)
        open_model(str(directory))
    assert "not read: " in caplog.text and what in caplog.text
    assert stray.partition("/")[0] in caplog.text


def test_what_is_whole_and_alone_is_read_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for count in (1, 2, 3):
        directory = write_checkpoint(tmp_path / str(count), CONFIG, num_shards=count)
        (directory / "adapter_config.json").write_text("{}")
        np.testing.assert_array_equal(value_of(directory), TRUE)
    assert caplog.text == ""


@pytest.mark.parametrize("shard", [1, 2, 3])
def test_the_index_says_which_copy_of_a_tensor_is_read(
    shard: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Any shard may hold a stale copy, also one that comes later."""
    directory = write_checkpoint(tmp_path, CONFIG, num_shards=3)
    own = json.loads((directory / INDEX).read_text())["weight_map"][NAME]
    file = directory / f"model-{shard:05}-of-00003.safetensors"
    if file.name == own:
        save_file(load_file(file) | {"unnamed.weight": np.ones(3)}, file)
    else:
        save_file(load_file(file) | STALE, file)
    np.testing.assert_array_equal(value_of(directory), TRUE)
    assert "unnamed.weight" not in FilesSource(directory).names()
    left = "unnamed.weight" if file.name == own else NAME
    assert f"{left} in {file.name}, which the index does not name" in caplog.text
    open_model(str(directory))


def test_shards_of_codes_follow_the_index_too(tmp_path: Path) -> None:
    """Raw reads, which quantised checkpoints use, come from the same file as the others."""
    save_file({"w": np.array([1, 2], np.int32)}, tmp_path / "a.safetensors")
    save_file({"w": np.array([3, 4], np.int32)}, tmp_path / "b.safetensors")
    for file, expected in (("a", [1, 2]), ("b", [3, 4])):
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"w": f"{file}.safetensors"}}))
        assert FilesSource(tmp_path).raw("w").tolist() == expected


@pytest.mark.parametrize(
    "kind", ["no such shard", "a shard without the tensor", "itself", "no shard at all"]
)
def test_a_stale_index_beside_a_whole_file_is_not_fatal(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = write_checkpoint(tmp_path, CONFIG)
    places = dict.fromkeys(tiny.weights(CONFIG), "model-00001-of-00001.safetensors")
    if kind == "a shard without the tensor":
        save_file(STALE, directory / "model-00001-of-00001.safetensors")
    if kind == "itself":
        places = {"model.a_tensor_of_before": WHOLE}
    if kind == "no shard at all":
        places = {}
    (directory / INDEX).write_text(json.dumps({"weight_map": places}))
    np.testing.assert_array_equal(value_of(directory), TRUE)
    assert f"{INDEX} is stale, {WHOLE} is read instead" in caplog.text
    open_model(str(directory))


def test_an_index_that_is_wrong_without_a_whole_file_is_refused(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, CONFIG, num_shards=2)
    index = json.loads((directory / INDEX).read_text())
    index["weight_map"][NAME] = (
        {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
        - {index["weight_map"][NAME]}
    ).pop()
    (directory / INDEX).write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=rf"names .*-of-00002.* for tensor {NAME}, which is not"):
        FilesSource(directory)
    del index["weight_map"][NAME]
    (directory / INDEX).write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=f"1 of 21 tensors are missing, {NAME}"):
        open_model(str(directory))


def test_a_numbered_set_without_an_index_is_read_if_it_is_whole(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, CONFIG, num_shards=3)
    (directory / INDEX).unlink()
    np.testing.assert_array_equal(value_of(directory), TRUE)
    second = directory / "model-00002-of-00003.safetensors"
    save_file(load_file(second) | STALE, second)
    with pytest.raises(WeightsError, match=rf"{NAME} is in model-0000.*and in model-0000"):
        FilesSource(directory)
    second.unlink()
    with pytest.raises(WeightsError, match="not clear which of model-00001-of-00003"):
        FilesSource(directory)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["gptq_model-4bit-128g.safetensors"], ["gptq_model-4bit-128g.safetensors"]),
        (["m.safetensors", "adapter_model.safetensors"], ["m.safetensors"]),
        (["sub/model.safetensors", "m.safetensors"], ["m.safetensors"]),
        (["a.safetensors", "b.safetensors"], "not clear which of a.safetensors, b.safetensors"),
        (["model-00001-of-00002.safetensors"], "not clear which"),
        (
            ["x-00001-of-00002.safetensors", "y-00002-of-00002.safetensors"],
            "not clear which of x-00001",
        ),
        (["adapter_model.safetensors"], r"no weights .*only adapter_model.*LoRA adapter: merge"),
        (["adapter_model.bin"], r"only adapter_model\.bin \(a LoRA adapter"),
        (["consolidated.00.pth"], r"only consolidated\.00\.pth \(weights under the names of Meta"),
        (["original/consolidated.00.pth"], r"only original/ \(files of Meta"),
        (["value_head.safetensors"], r"only value_head\.safetensors \(a value head"),
        (["pytorch_model.bin", "optimizer.pt"], r"only pytorch_model\.bin: give load_format='pt'"),
        (["config.json"], r"has no \*\.safetensors file"),
    ],
)
def test_the_choice_by_names(names: list[str], expected: list[str] | str) -> None:
    if isinstance(expected, list):
        assert chosen_files(names, None, "here") == expected
        return
    with pytest.raises(WeightsError, match=expected):
        chosen_files(names, None, "here")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("v_head.summary.weight", "value head of reinforcement learning"),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "merge_and_unload"),
        ("score.weight", "ForSequenceClassification"),
        ("vision_tower.conv.weight", "images"),
        ("layers.0.attention.wq.weight", "Hugging Face layout"),
        ("model.another.weight", "Is config.json's architecture right"),
    ],
)
def test_a_tensor_without_a_place_has_a_hint_that_fits(
    name: str, hint: str, tmp_path: Path
) -> None:
    tensors = tiny.weights(CONFIG) | {name: np.ones(3, np.float32)}
    with pytest.raises(WeightsError, match=f"1 tensors have no place .*{hint}"):
        open_model(str(write_checkpoint(tmp_path, CONFIG, tensors)))


def test_an_adapter_in_place_of_a_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    save_file({"base_model.model.w.lora_A.weight": np.ones(3)}, tmp_path / WHOLE)
    (tmp_path / WHOLE).rename(tmp_path / "adapter_model.safetensors")
    with pytest.raises(ModelNotFoundError, match=r"no config\.json.*LoRA adapter: merge"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(WeightsError, match=r"only adapter_model\.safetensors \(a LoRA adapter"):
        open_model(str(tmp_path))
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / WHOLE)
    with pytest.raises(WeightsError, match=r"2 layers.*tensors of 0.*lora_A.*merge_and_unload"):
        open_model(str(tmp_path))


class Hub:
    """A hub with one repository; what is fetched of it is written down."""

    def __init__(self, source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import huggingface_hub

        self.source, self.cache, self.fetched = source, cache, set[str]()
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot_download)
        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: self.info())

    def names(self) -> list[str]:
        files = (one for one in self.source.rglob("*") if one.is_file())
        return [one.relative_to(self.source).as_posix() for one in files]

    def info(self) -> SimpleNamespace:
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=one) for one in self.names()])

    def snapshot_download(self, name: str, **options: Any) -> str:
        from huggingface_hub.errors import LocalEntryNotFoundError
        from huggingface_hub.utils import filter_repo_objects

        if options.get("local_files_only"):
            raise LocalEntryNotFoundError("nothing is cached")
        for one in filter_repo_objects(self.names(), allow_patterns=options["allow_patterns"]):
            self.fetched.add(one)
            (self.cache / one).parent.mkdir(parents=True, exist_ok=True)
            (self.cache / one).write_bytes((self.source / one).read_bytes())
        return str(self.cache)


@pytest.mark.parametrize("config_only", [False, True])
@pytest.mark.parametrize("num_shards", [1, 2])
def test_downloads_take_what_is_read_and_no_more(
    num_shards: int, config_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_checkpoint(tmp_path / "hub", CONFIG, num_shards=num_shards)
    weights = {one.name for one in source.glob("*.safetensors")}
    small = {"config.json", "tokenizer.json", "chat_template.jinja", "1_Pooling/config.json"}
    small |= {"additional_chat_templates/tool_use.jinja", "modules.json", "tokenizer.model"}
    small |= {"vocab.txt"}
    others = {"original/params.json", "original/consolidated.safetensors", "onnx/config.json"}
    others |= {"consolidated.safetensors", "adapter_model.safetensors", "a[1].safetensors"}
    others |= {"pytorch_model.bin", "pytorch_model.bin.index.json", "checkpoint-1/config.json"}
    others |= {"sub/model.safetensors", "consolidated.safetensors.index.json", "README.md"}
    for name in (small - {"config.json"}) | others:
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("{}")
    hub = Hub(source, tmp_path / "cache", monkeypatch)
    assert resolve_model("owner/name", config_only=config_only) == tmp_path / "cache"
    index = {INDEX} if num_shards > 1 else set()
    assert hub.fetched == small | index | (set() if config_only else weights)


def test_a_repository_without_a_model_says_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "hub"
    source.mkdir()
    (source / "adapter_model.safetensors").write_text("")
    hub = Hub(source, tmp_path / "cache", monkeypatch)
    with pytest.raises(ModelNotFoundError, match=r"owner/name.*no config\.json.*LoRA adapter"):
        resolve_model("owner/name", hub=HubOptions())
    (source / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"owner/name has no weights.*LoRA adapter"):
        resolve_model("owner/name")
    assert hub.fetched == {"config.json"}


def test_what_was_downloaded_before_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's client keeps a list of all files of a repository; most were not fetched."""
    import huggingface_hub._snapshot_download as client
    import huggingface_hub.constants as constants

    if not hasattr(client, "write_tree_cache"):
        pytest.skip("this version of the client keeps no list")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository, commit = tmp_path / "models--owner--name", "a" * 40
    snapshot = write_checkpoint(repository / "snapshots" / commit, CONFIG)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    listed = ["config.json", WHOLE, "tokenizer.json", "README.md", "original/params.json"]
    listed += ["consolidated.safetensors", "pytorch_model.bin.index.json", "a.bin"]
    (snapshot / "tokenizer.json").write_text("{}")
    entry = client.TreeCacheEntry(
        size=1, blob_id="b", lfs_sha256=None, lfs_size=None, xet_hash=None
    )
    client.write_tree_cache(str(repository), commit, dict.fromkeys(listed, entry))
    assert resolve_model("owner/name") == resolve_model("owner/name", config_only=True) == snapshot
    (snapshot / "tokenizer.json").unlink()  # an interrupted download
    with pytest.raises(ModelNotFoundError, match="owner/name"):
        resolve_model("owner/name", config_only=True)
