"""Folders of PEFT's: each tensor has its place, or the load is refused with what to do."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import save

from jax_engine.errors import ConfigError, JaxEngineError, ModelNotFoundError, WeightsError
from jax_engine.lora import adapter_tensors
from jax_engine.lora.adapter_registry import read_adapter
from jax_engine.lora.modules import modules_of
from jax_engine.models.registry import config_from_hf
from tests.golden.families.first_cases import FIRST
from tests.lora.adapters import (
    CONFIG,
    DOWN1,
    EMBED,
    HEAD,
    K1,
    Q0,
    modules,
    read,
    tensors_of,
    write_folder,
)

PREFIX = "base_model.model."
A0, B0 = f"{PREFIX}{Q0}.lora_A.weight", f"{PREFIX}{Q0}.lora_B.weight"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_folder_and_arrays_are_the_same_adapter(dtype: Any, tmp_path: Path) -> None:
    tensors = tensors_of((Q0, K1, DOWN1), dtype=dtype)
    adapter = read_adapter(write_folder(tmp_path, tensors), modules(), max_lora_rank=4)
    assert adapter == read(tensors)
    (one,) = (one for one in adapter.modules if one.name == Q0)
    assert one.a.dtype == one.b.dtype == dtype
    np.testing.assert_array_equal(one.a, tensors[A0])
    np.testing.assert_array_equal(one.b, tensors[B0])


def test_float64_is_rounded() -> None:
    adapter = read(tensors_of(dtype=np.float64))
    assert all(array.dtype == np.float32 for one in adapter.modules for array in one.arrays)
    with pytest.raises(WeightsError, match=r"finite, found inf at \[0, 0\]"):
        read(tensors_of(dtype=np.float64) | {A0: np.full((4, 32), 1e300)})


@given(st.permutations(sorted(tensors_of((Q0, K1, EMBED)))), st.sampled_from([{}, {"a": "b"}]))
def test_the_order_of_tensors_does_not_matter(order: list[str], metadata: dict[str, str]) -> None:
    tensors = tensors_of((Q0, K1, EMBED))
    assert read({name: tensors[name] for name in order}) == read(tensors)


def test_the_order_in_a_file_does_not_matter(tmp_path: Path) -> None:
    """safetensors sorts by dtype and name, so the header is written by hand."""
    tensors = tensors_of()
    expected = read(tensors)
    for turn in range(len(tensors)):
        names = [*list(tensors)[turn:], *list(tensors)[:turn]]
        header, at = {}, 0
        for name in names:
            end = at + tensors[name].nbytes
            header[name] = {
                "dtype": "F32",
                "shape": list(tensors[name].shape),
                "data_offsets": [at, end],
            }
            at = end
        text = json.dumps(header).encode()
        data = b"".join(tensors[name].tobytes() for name in names)
        folder = write_folder(tmp_path, tensors)
        whole = struct.pack("<Q", len(text)) + text + data
        (folder / "adapter_model.safetensors").write_bytes(whole)
        assert read_adapter(folder, modules(), max_lora_rank=4) == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("adapter"), tensors_of())


WHOLE = save(tensors_of())


@given(st.integers(0, len(WHOLE) - 1))
@example(0)
@example(7)
@example(8)
@example(len(WHOLE) - 1)
def test_any_truncation_is_a_typed_error(folder: Path, length: int) -> None:
    (folder / "adapter_model.safetensors").write_bytes(WHOLE[:length])
    with pytest.raises(WeightsError, match=rf"adapter_model\.safetensors \({length} bytes\)"):
        read_adapter(folder, modules(), max_lora_rank=4)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_any_byte_that_is_changed_is_noticed(folder: Path, place: int, flip: int) -> None:
    """It gives an error or another digest. The file has no metadata, which may be anything."""
    damaged = bytearray(WHOLE)
    damaged[place] ^= flip
    (folder / "adapter_model.safetensors").write_bytes(damaged)
    try:
        assert read_adapter(folder, modules(), max_lora_rank=4) != read()
    except JaxEngineError as error:
        assert len(str(error)) > 20


def test_any_truncation_of_the_configuration_is_a_typed_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, tensors_of())
    text = (folder / "adapter_config.json").read_text()
    for length in range(len(text)):
        (folder / "adapter_config.json").write_text(text[:length])
        with pytest.raises(WeightsError, match=r"adapter_config\.json is unreadable"):
            read_adapter(folder, modules(), max_lora_rank=4)


def test_files_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no adapter at"):
        read_adapter(tmp_path / "none", modules(), max_lora_rank=4)
    with pytest.raises(WeightsError, match=r"has no adapter_config\.json"):
        read_adapter(tmp_path, modules(), max_lora_rank=4)
    folder = write_folder(tmp_path, tensors_of())
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"has no adapter_model\.safetensors or .*\.bin\. Save"):
        read_adapter(folder, modules(), max_lora_rank=4)
    (folder / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"adapter_model\.bin is no PyTorch file"):
        read_adapter(folder, modules(), max_lora_rank=4)
    (folder / "adapter_config.json").write_text("[]")
    with pytest.raises(WeightsError, match="must hold a JSON object"):
        read_adapter(folder, modules(), max_lora_rank=4)


def test_an_embedding_and_a_tied_head() -> None:
    for name in ("plain", "tied"):
        of = modules(name)
        tensors = tensors_of((EMBED, HEAD), of=of)
        embed, head = read(tensors, of=of).modules[::-1]
        assert (embed.name, embed.a.shape, embed.b.shape) == (EMBED, (4, 61), (32, 4))
        assert (head.name, head.a.shape, head.b.shape) == (HEAD, (4, 32), (61, 4))


def test_names_of_a_bare_decoder() -> None:
    """An adapter of AutoModel, which embeds, lacks the first part of each name."""
    tensors = tensors_of()
    bare = {name.replace(f"{PREFIX}model.", PREFIX): array for name, array in tensors.items()}
    assert read(bare) == read(tensors)
    with pytest.raises(WeightsError, match="is for the same module"):
        read(tensors | bare)


def without(name: str) -> dict[str, np.ndarray]:
    return {one: array for one, array in tensors_of().items() if one != name}


def renamed(old: str, new: str) -> dict[str, np.ndarray]:
    return {name.replace(old, new): array for name, array in tensors_of().items()}


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        ({}, "must have tensors, found none"),
        (without(A0), f"{Q0}.lora_B.weight: its partner is missing"),
        (without(B0), f"{Q0}.lora_A.weight: its partner is missing"),
        (renamed("q_proj", "q_porj"), f"no module .*q_porj .*nearest names are .*{Q0}"),
        (renamed("layers.0", "layers.2"), r"no module model\.layers\.2\.self_attn\.q_proj"),
        (renamed("q_proj", "qkv_proj"), r"no module .*qkv_proj .*nearest names are "),
        (renamed("layers.0.self_attn.q_proj", "norm"), r"no module model\.norm"),
        (renamed(PREFIX, ""), "is not named as PEFT names one"),
        (renamed(".lora_A.weight", ".lora_A.bias"), "is not named as PEFT names one"),
        (renamed(".lora_A.weight", ".lora_A.default.weight"), "has the adapter's name in it"),
        (renamed(".lora_A.", ".lora_C."), "is not named as PEFT names one"),
        (renamed(".lora_A.weight", ".lora_embedding_A"), "adapter of .*q_proj has lora_A and"),
        (
            {f"{PREFIX}{EMBED}.lora_A.weight": np.ones((4, 61), np.float32)},
            "adapter of model.embed_tokens has lora_embedding_A",
        ),
        (
            tensors_of() | {f"{PREFIX}{Q0}.lora_magnitude_vector": np.ones(32, np.float32)},
            "is of DoRA",
        ),
        (
            tensors_of() | {f"{PREFIX}{HEAD}.modules_to_save.weight": np.ones((61, 32))},
            "modules_to_save",
        ),
        (
            tensors_of() | {f"{PREFIX}{EMBED}.base_layer.weight": np.ones((61, 32))},
            "save_embedding_layers=False",
        ),
        (
            tensors_of() | {f"{PREFIX}{EMBED}.weight": np.ones((61, 32))},
            "save_embedding_layers=False",
        ),
        (tensors_of() | {A0: np.ones((4, 31), np.float32)}, r"shape \(4, 32\) .*found \(4, 31\)"),
        (tensors_of() | {B0: np.ones((31, 4), np.float32)}, r"shape \(32, 4\) .*found \(31, 4\)"),
        (tensors_of() | {B0: np.ones((32, 3), np.float32)}, r"shape \(32, 4\) .*found \(32, 3\)"),
        (tensors_of() | {A0: np.ones((4, 32, 1), np.float32)}, r"found \(4, 32, 1\)"),
        (tensors_of() | {A0: np.ones(4, np.float32)}, r"found \(4,\)"),
        (tensors_of() | {A0: np.float32(1)[...]}, r"shape \(\), but .* has rank 4"),
        (tensors_of(rank=3), r"shape \(3, 32\), but .* has rank 4"),
        (tensors_of() | {A0: np.full((4, 32), np.nan, np.float32)}, r"found nan at \[0, 0\]"),
        (tensors_of() | {B0: np.full((32, 4), -np.inf, np.float16)}, "found -inf"),
        (tensors_of() | {A0: np.ones((4, 32), np.int32)}, "dtype int32 is not supported"),
        (tensors_of() | {A0: np.ones((4, 32), ml_dtypes.float8_e4m3fn)}, "float8_e4m3fn is not"),
        (tensors_of() | {A0: np.ones((4, 32), complex)}, "complex128 is not supported"),
        (tensors_of() | {A0: [[1.0]]}, "expected a NumPy array"),
        (tensors_of() | {5: np.ones(1)}, "tensor 5: expected"),
    ],
)
def test_tensors_that_are_refused(tensors: Any, what: str) -> None:
    with pytest.raises(WeightsError, match=what):
        read(tensors)


def test_ranks_above_the_limit() -> None:
    assert read(limit=4).rank == 4
    with pytest.raises(ConfigError, match=r"rank of .*_proj is 4, above max_lora_rank \(3\)"):
        read(limit=3)
    with pytest.raises(ConfigError, match=r"rank of .*k_proj is 9, above max_lora_rank \(8\)"):
        read(tensors_of(ranks={K1: 9}), limit=8, rank_pattern={"k_proj": 9})
    for wrong in (0, -1, 1.5, None):
        with pytest.raises(WeightsError, match="max_lora_rank must be an integer >= 1"):
            read(limit=wrong)  # type: ignore[arg-type]


def test_nothing_is_read_before_all_is_checked(tmp_path: Path) -> None:
    """The last tensor's shape is wrong: no number of the others has been looked at."""
    name = max(tensors_of())
    folder = write_folder(tmp_path, tensors_of() | {name: np.ones((3, 3), np.float32)})
    with mock.patch.object(adapter_tensors.Stored, "read", side_effect=AssertionError) as reads:
        for limit, error in ((4, WeightsError), (3, JaxEngineError)):
            with pytest.raises(error):
                read_adapter(folder, modules(), max_lora_rank=limit)
    assert not reads.called


def test_experts_and_routers_may_have_no_tensors() -> None:
    """transformers 5 has them as parameters, which are none of PEFT's "all-linear" modules."""
    name, config = FIRST["mixtral"]
    of = modules_of(config_from_hf(config | {"architectures": [f"{name}ForCausalLM"]}))
    attention = [one for one, module in of.by_name.items() if module.kind == "linear"]
    assert len(read(tensors_of(attention, of=of), of=of, target_modules="all-linear").modules) == 12


def awkward() -> Iterator[Any]:
    """Inputs that are right, or wrong, in a way of their own."""
    tensors, fine = tensors_of(), None
    a, b = tensors[A0], tensors[B0]
    yield pytest.param(tensors | {A0: np.asfortranarray(a)}, {}, fine, id="columns first")
    yield pytest.param(tensors | {A0: a[::-1][::-1]}, {}, fine, id="a view with negative strides")
    yield pytest.param(tensors | {A0: a.astype(">f4")}, {}, fine, id="the other byte order")
    yield pytest.param(tensors | {A0: np.broadcast_to(a, (4, 32))}, {}, fine, id="a broadcast")
    yield pytest.param(tensors, {"lora_alpha": 8.0}, fine, id="alpha as a float")
    yield pytest.param(
        tensors,
        {"target_modules": ["q_proj", Q0, K1], "layers_pattern": ""},
        "layers.1.self_attn.q_proj, but there are no",
        id="a name and its end",
    )
    yield pytest.param(tensors, {"target_modules": []}, "does not select", id="no target at all")
    yield pytest.param(
        tensors,
        {"target_modules": "q_proj"},
        "does not select",
        id="one name that is not in a list is a pattern",
    )
    yield pytest.param(
        tensors, {"target_modules": ["proj"]}, "does not select", id="a part of a name is no name"
    )
    yield pytest.param(tensors | {A0: a[:0], B0: b[:, :0]}, {}, "rank 4", id="an empty rank")
    yield pytest.param(tensors | {A0: b.T, B0: a.T}, {}, fine, id="A and B of a square")
    yield pytest.param(
        renamed("self_attn.q", "self_attn.q_proj.base_layer.q"),
        {},
        "no module",
        id="an adapter of an adapter",
    )
    yield pytest.param(
        {name.replace("layers.0", "layers.00"): one for name, one in tensors.items()},
        {},
        "no module",
        id="a layer with a leading zero",
    )
    yield pytest.param(
        tensors | {f"{PREFIX}\N{LATIN SMALL LETTER E WITH ACUTE}.lora_A.weight": a},
        {},
        "no module \N{LATIN SMALL LETTER E WITH ACUTE}",
        id="another alphabet",
    )
    yield pytest.param(tensors | {f"{PREFIX}{{layer}}.lora_A.weight": a}, {}, "no module {layer}",
                       id="braces, which templates have")  # fmt: skip


@pytest.mark.parametrize(("tensors", "config", "what"), [*awkward()])
def test_awkward_inputs(tensors: Any, config: dict[str, Any], what: str | None) -> None:
    if what is not None:
        with pytest.raises(WeightsError, match=what):
            read(tensors, **config)
        return
    adapter = read(tensors, **config)
    (one,) = (one for one in adapter.modules if one.name == Q0)
    np.testing.assert_array_equal(one.a, tensors[A0])
    np.testing.assert_array_equal(one.b, tensors[B0])
    assert one.a.dtype.isnative and one.a.flags.c_contiguous
    values = {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
    assert adapter == read(values)


def test_many_patterns_take_no_long() -> None:
    """A name in full for each module, as adapters with a rank of their own for each have them."""
    ranks = {f"model.layers.{layer}.self_attn.q_proj": 4 for layer in range(3000)}
    assert read(rank_pattern=ranks) == read(r=4)
    assert CONFIG["r"] == 4
