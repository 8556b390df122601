"""What all quantised checkpoints share: kinds of codes, the words of users, damage."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jax_engine.errors import ConfigError, JaxEngineError, WeightsError
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.checkpoints.quantization.matrices import unpack_stream, unpack_words
from jax_engine.models.checkpoints.quantization.quantized_source import (
    METHODS,
    QuantizedSource,
    open_quantized,
)
from jax_engine.weights.codes import numbers, row_dtype
from jax_engine.weights.tensor_source import CodesSource
from reference.quantization import awq, compressed_tensors, fp8, gptq, mxfp4, nf4, nvfp4, squeezellm
from reference.quantization.bits import unpack_stream as oracle_stream
from tests.models.quantised_files import (
    NAMES,
    Stored,
    Tensors,
    module,
    opened,
    read,
    row_shape,
    write_file,
)

N, K = 32, 96
NAME = "model.layers.0.mlp.up_proj"
WEIGHT = f"{NAME}.weight"


def random_matrix(seed: int = 0, shape: tuple[int, ...] = (N, K)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_codes_in_bytes_and_words() -> None:
    rng = np.random.default_rng(5)
    words = rng.integers(-(2**31), 2**31, (3, 7), np.int64).astype(np.int32)
    for bits in range(1, 9):
        for count in (1, 7, 8, 9, 7 * 32 // bits):
            out = np.empty((3, count), np.uint8)
            unpack_stream(words, bits, out)
            np.testing.assert_array_equal(out, oracle_stream(words, bits)[:, :count])
        in_word = 32 // bits
        out = np.empty((3, 7 * in_word - 1), np.uint8)
        unpack_words(words, bits, out)
        expected = oracle_stream(words[..., None], bits).reshape(3, -1)
        np.testing.assert_array_equal(out, expected[:, :-1])


def test_tensors_of_several_kinds(tmp_path: Path) -> None:
    """An asymmetric one in groups of 32, a symmetric one in one group, and one of 4 bits."""
    args = {
        "q": {"num_bits": 8, "group_size": 32, "symmetric": False},
        "k": {"num_bits": 8, "group_size": -1},
        "v": {"num_bits": 4, "group_size": 48},
    }
    tensors: Tensors = {"o.weight": random_matrix()}
    expected = {}
    for name, one in args.items():
        symmetric, group = bool(one.get("symmetric", True)), max(one["group_size"], 0) or K
        bits = one["num_bits"]
        stored = compressed_tensors.quantise_packed(
            random_matrix(), bits, group, symmetric=symmetric
        )
        scale = stored.weight_scale.astype(ml_dtypes.bfloat16)
        stored = stored._replace(weight_scale=scale.astype(np.float32))
        expected[name] = compressed_tensors.decode_packed(stored, bits)
        parts = stored._asdict() | {"weight_scale": scale, "weight_shape": np.array([N, K])}
        tensors |= module(name, parts)
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    config["config_groups"] = {
        name: {"targets": [name], "weights": weights} for name, weights in args.items()
    }
    source = opened(tmp_path, tensors, config)
    assert isinstance(source, CodesSource) and len(source.kinds) == 3
    assert [source.kinds.index(source.kind(f"{name}.weight")) for name in "kqv"] == [0, 1, 2]
    rows = np.empty((3, N), row_dtype(source.kinds, K))
    for name, out in zip(args, rows, strict=True):
        source.read_into(f"{name}.weight", out)
    found = numbers(rows, source.kinds)
    for one, wanted in zip(found, expected.values(), strict=True):
        np.testing.assert_array_equal(one, wanted)
    assert source.kind("o.weight") is None


def test_too_many_kinds(tmp_path: Path) -> None:
    tensors: Tensors = {}
    stored = fp8.quantise(random_matrix(shape=(1, 300)), (1, 300))
    for size in range(1, 258):
        weight = Stored(stored.weight[:, :size], "F8_E4M3")
        tensors |= module(f"x{size}", {"weight": weight, "weight_scale": stored.scale})
    source = opened(tmp_path, tensors, {"quant_method": "fp8"})
    with pytest.raises(WeightsError, match=r"257 kinds of codes; expected 256 at most"):
        _ = source.kinds


def test_a_checkpoint_that_is_not_quantised(tmp_path: Path) -> None:
    write_file(tmp_path / "model.safetensors", {"model.norm.weight": np.ones(3, np.float32)})
    source = FilesSource(tmp_path)
    for config in ({}, {"quantization_config": None}, {"quantization_config": {}}):
        assert open_quantized(source, config) is source
        assert open_quantized(source, config, "fp8") is source  # the loader rounds it
        with pytest.raises(ConfigError, match=r"quantization='gptq', but .* is not quantised"):
            open_quantized(source, config, "gptq")
    with pytest.raises(ConfigError, match="quantization 'x' is not supported; known: gptq, awq"):
        open_quantized(source, {}, "x")
    with pytest.raises(ConfigError, match=r"config\.json: quantization_config must be a dict"):
        open_quantized(source, {"quantization_config": 3})


def test_the_older_name_of_the_configuration(tmp_path: Path) -> None:
    tensors, config = EVERY["compressed-tensors"]
    write_file(tmp_path / "model.safetensors", tensors)
    source = FilesSource(tmp_path)
    del (older := dict(config))["quant_method"]
    for raw in (config, older, config | {"quant_method": "sparseml"}):
        found = open_quantized(source, {"compression_config": raw})
        assert isinstance(found, QuantizedSource) and found.source is source
        assert found.names() == {WEIGHT}


def test_raw_tensors(tmp_path: Path) -> None:
    stored = {name: np.arange(6).reshape(2, 3).astype(dtype) for dtype, name in NAMES.items()}
    stored = {name: x for name, x in stored.items() if name != "F8_E8M0"}
    write_file(tmp_path / "model.safetensors", stored | {"U16": Stored(np.zeros(2, "u2"), "U16")})
    source = FilesSource(tmp_path)
    for name, expected in stored.items():
        found = source.raw(name)
        assert source.dtype(name) == name and found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        assert not found.flags.writeable
    with pytest.raises(WeightsError, match=r"model\.safetensors, tensor U16: dtype U16 is not"):
        source.raw("U16")
    unread = FilesSource(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"model\.safetensors is unreadable: .*No such file"):
        unread.raw("F32")


def parts_of_every_method() -> dict[str, tuple[Tensors, dict[str, Any]]]:
    """A small checkpoint of each method, with its `quantization_config`."""
    matrix = random_matrix()
    order = np.random.default_rng(1).permutation(K).astype(np.int32)
    in_gptq = gptq.quantise(matrix, 3, 32, order=order)
    eight = fp8.quantise(matrix, (N, K))
    blocks, scales = mxfp4.quantise(random_matrix(shape=(2, N, K)))
    codes, scale, divisor = nvfp4.quantise(matrix)
    packed = compressed_tensors.quantise_packed(matrix, 4, 32, symmetric=False)
    in_nf4 = nf4.quantise(random_matrix(shape=(4, 128)), nested=True)
    assert in_nf4.nested is not None
    state = {"blocksize": 64, "shape": [4, 128], "nested_blocksize": 256, "nested_offset": 1.5}
    weights = {"num_bits": 4, "type": "int", "symmetric": False, "group_size": 32}
    floats = {"num_bits": 4, "type": "float"}
    of_ct = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    group = {"targets": ["Linear"], "weights": weights}
    nv = {"targets": ["Linear"], "weights": floats, "format": "nvfp4-pack-quantized"}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "gptq": (in_gptq._asdict(), {"bits": 3, "group_size": 32, "sym": False}),
        "awq": (awq.quantise(matrix, 32)._asdict(), {"bits": 4, "group_size": 32}),
        "compressed-tensors": (
            packed._asdict() | {"weight_shape": np.array([N, K])},
            of_ct | {"config_groups": {"group_0": group}},
        ),
        "nvfp4": (
            {
                "weight_packed": codes,
                "weight_scale": Stored(scale, "F8_E4M3"),
                "weight_global_scale": divisor,
            },
            of_ct | {"config_groups": {"group_0": nv}},
        ),
        "fp8": (
            {"weight": Stored(eight.weight, "F8_E4M3"), "weight_scale_inv": eight.scale},
            {"weight_block_size": [128, 128]},
        ),
        "modelopt": (
            {"weight": codes, "weight_scale": Stored(scale, "F8_E4M3"), "weight_scale_2": divisor},
            {"quant_algo": "NVFP4"},
        ),
        "bitsandbytes": (
            {
                "weight": in_nf4.weight,
                "weight.absmax": in_nf4.absmax,
                "weight.quant_map": in_nf4.quant_map,
                "weight.nested_absmax": in_nf4.nested.absmax,
                "weight.nested_quant_map": in_nf4.nested.quant_map,
                "weight.quant_state.bitsandbytes__nf4": np.frombuffer(
                    json.dumps(state).encode(), np.uint8
                ),
            },
            {"load_in_4bit": True},
        ),
        "squeezellm": (squeezellm.quantise(matrix, 4, 2)._asdict(), {"wbits": 4}),
    }
    found = {
        method: (module(NAME, parts), {"quant_method": method} | fields)
        for method, (parts, fields) in cases.items()
    }
    of_experts = {f"{NAME}_blocks": blocks, f"{NAME}_scales": scales}
    return found | {"mxfp4": (of_experts, {"quant_method": "mxfp4"})}


EVERY = parts_of_every_method()


def use(source: QuantizedSource) -> None:
    """Reads everything in every form."""
    for name in source.names():
        kind = source.kind(name)
        source.order(name)
        read(source, name)
        if kind is not None:
            shape, size = row_shape(source, name)
            rows = np.zeros(shape, row_dtype(source.kinds, size))
            source.read_into(name, rows)
            with np.errstate(all="ignore"):
                numbers(rows, source.kinds)


def test_every_method_is_here() -> None:
    assert set(EVERY) - {"nvfp4"} == set(METHODS) - {"modelopt_fp4"}


@pytest.mark.parametrize("method", EVERY)
def test_threads_read_what_one_reads(method: str, tmp_path: Path) -> None:
    source = opened(tmp_path, *EVERY[method])
    (name,) = source.names()
    use(source)
    again = opened(tmp_path, *EVERY[method])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: read(again, name), range(8)))
    for one in found:
        np.testing.assert_array_equal(one, read(source, name))


def cut(x: Stored, share: float) -> Stored:
    rows = len(x.data) if x.data.ndim else 1
    return x._replace(data=np.atleast_1d(x.data)[: int(rows * share)])


def filled(x: Stored, share: float) -> Stored:
    """The bytes from a place on become large."""
    data = np.ascontiguousarray(x.data).copy()
    raw = data.reshape(-1).view(np.uint8)
    raw[int(len(raw) * share) :] = 0xFE
    return x._replace(data=data)


def flipped(x: Stored, share: float) -> Stored:
    data = np.ascontiguousarray(x.data).copy()
    raw = data.reshape(-1).view(np.uint8)
    raw[int(len(raw) * share)] ^= 0x8D
    return x._replace(data=data)


def turned(x: Stored, share: float) -> Stored:
    del share
    return x._replace(data=x.data.T)


def longer(x: Stored, share: float) -> Stored:
    del share
    return x._replace(data=np.concatenate([np.atleast_1d(x.data)] * 2))


def of_another_dtype(x: Stored, share: float) -> Stored:
    return x._replace(dtype=("I8", "BOOL", "F8_E4M3", "F8_E5M2")[int(4 * share)])


DAMAGE: list[Callable[[Stored, float], Stored]] = [
    cut, filled, flipped, turned, longer, of_another_dtype,
]  # fmt: skip


@settings(max_examples=min(3000, 4 * settings.default.max_examples), deadline=None)
@given(
    method=st.sampled_from(sorted(EVERY)),
    steps=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.sampled_from([*DAMAGE, None]),
            st.floats(0, 1, exclude_max=True),
        ),
        min_size=1,
        max_size=3,
    ),
)
@example(method="gptq", steps=[(0.0, None, 0.0)])
def test_damaged_parts_give_typed_errors(
    tmp_path_factory: pytest.TempPathFactory,
    method: str,
    steps: list[tuple[float, Callable[[Stored, float], Stored] | None, float]],
) -> None:
    tensors, config = EVERY[method]
    held = {
        name: x if isinstance(x, Stored) else Stored(x, NAMES[x.dtype])
        for name, x in tensors.items()
    }
    for which, damage, share in steps:
        if not held:
            break
        name = sorted(held)[int(which * len(held))]
        if damage is None:
            del held[name]
        elif damage is of_another_dtype and held[name].data.dtype.itemsize != 1:
            raw = np.ascontiguousarray(held[name].data).reshape(-1)
            held[name] = Stored(raw.view("<u4"), "F32") if raw.dtype == "<i4" else held[name]
        elif held[name].data.size:
            held[name] = damage(held[name], share)
    directory = tmp_path_factory.mktemp("damaged")
    try:
        use(opened(directory, {**held}, config))
    except JaxEngineError as error:
        assert len(str(error)) > 20
