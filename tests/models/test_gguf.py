"""GGUF files: every block type decodes as the gguf package says; damage is found and named."""

from pathlib import Path
from typing import Any

import gguf
import jax
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.model_spec import RopeConfig
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import GgufSource, config_from_gguf
from jax_engine.models.checkpoints.gguf.gguf_tensors import SUPPORTED_TYPES, decode
from jax_engine.models.model_loader import load_model
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint
from tests.models.llama_cpp import converted, metadata, permuted, write_gguf_file

CONFIG = tiny.CONFIGS["plain"]


def gguf_tensors(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The tiny checkpoint under GGUF's names."""
    return converted(config, tiny.weights(config), "llama")


def write_gguf(
    path: Path,
    config: dict[str, Any] = CONFIG,
    *,
    tensors: dict[str, np.ndarray] | None = None,
    extra: dict[str, Any] | None = None,
    architecture: str = "llama",
) -> Path:
    fields = {
        f"{architecture}.{key}": value for key, value in metadata(config, architecture).items()
    }
    fields |= {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    tensors = gguf_tensors(config) if tensors is None else tensors
    write_gguf_file(path, architecture, fields | (extra or {}), tensors)
    return path


@pytest.mark.parametrize("name", ["plain", "tied", "biases", "wide_heads"])
def test_gguf_and_safetensors_are_the_same_model(name: str, tmp_path: Path) -> None:
    config = tiny.CONFIGS[name]
    ours = load_model(str(write_gguf(tmp_path / "m.gguf", config)))
    theirs = load_model(str(write_checkpoint(tmp_path / "hf", config)))
    assert ours.config == theirs.config
    assert ours.num_parameters == sum(w.size for w in tiny.weights(config).values())
    for one, other in zip(
        jax.tree.leaves(ours.params), jax.tree.leaves(theirs.params), strict=True
    ):
        np.testing.assert_array_equal(one, other)


# Where the half-precision scales lie in a block, if not at its start alone.
SCALES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ1_M": (),  # in bits of its other scales
}


def random_blocks(kind: GGMLQuantizationType, shape: tuple[int, int]) -> np.ndarray:
    """Bytes of a tensor: quantised where gguf can, else random blocks with finite scales."""
    rng = np.random.default_rng(kind)
    values = rng.uniform(-1, 1, shape).astype(np.float32)
    try:
        return quantize(values, kind)
    except NotImplementedError:
        block, num_bytes = GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (shape[0], shape[1] // block, num_bytes), np.uint8)
        scales = SCALES.get(kind.name, (0,))
        for at in scales:
            half = rng.uniform(-0.1, 0.1, blocks.shape[:2]).astype(np.float16)
            blocks[..., at : at + 2] = half[..., None].view(np.uint8)
        if kind.name == "IQ1_M":
            blocks[..., -1] &= 0xBF  # the top of the scale's exponent: else it may be no number
        return blocks.reshape(shape[0], -1)


@pytest.mark.parametrize("kind", SUPPORTED_TYPES, ids=lambda kind: kind.name)
def test_every_block_type(kind: GGMLQuantizationType, tmp_path: Path) -> None:
    config = CONFIG | {"hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 1}
    shape = (config["num_attention_heads"] * config["head_dim"], 512)
    raw = random_blocks(kind, shape)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for name in ("blk.0.attn_q.weight", "blk.0.attn_v.weight"):
        writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(tmp_path / "m.gguf")
    expected = dequantize(raw, kind).reshape(shape)
    np.testing.assert_array_equal(decode(file, "blk.0.attn_v.weight", 0, expected.size),
                                  expected.reshape(-1))  # fmt: skip
    model = config_from_gguf(GgufFile(write_gguf(tmp_path / "config.gguf")))
    source = GgufSource(file, model)
    out = np.empty(shape, np.float32)
    source.read_into("model.layers.0.self_attn.v_proj.weight", out)
    np.testing.assert_array_equal(out, expected)
    source.read_into("model.layers.0.self_attn.q_proj.weight", out)
    np.testing.assert_array_equal(permuted(out, config["num_attention_heads"]), expected)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, RopeConfig(theta=500.0)),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            RopeConfig(theta=500.0, type="linear", factor=4.0),
        ),
        ({"llama.rope.scale_linear": 2.0}, RopeConfig(theta=500.0, type="linear", factor=2.0)),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 16,
            },
            RopeConfig(theta=500.0, type="yarn", factor=4.0, original_max_position_embeddings=16),
        ),
        (
            {  # llama.cpp multiplies this factor into YaRN's own, 1 + 0.1 ln 4
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 16,
                "llama.rope.scaling.attn_factor": 2.0,
            },
            RopeConfig(
                theta=500.0,
                type="yarn",
                factor=4.0,
                original_max_position_embeddings=16,
                attention_factor=2.0 * (1.0 + 0.1 * float(np.log(4.0))),
            ),
        ),
    ],
)
def test_rope_scaling_fields(extra: dict[str, Any], expected: RopeConfig, tmp_path: Path) -> None:
    file = GgufFile(write_gguf(tmp_path / "m.gguf", extra=extra))
    assert config_from_gguf(file).spec.attentions[0].ropes == [expected]


def test_rope_factors_tensor(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.array([1, 1, 2, 8], np.float32)}
    path = write_gguf(tmp_path / "m.gguf", tensors=gguf_tensors(CONFIG) | factors)
    (rope,) = load_model(str(path)).config.spec.attentions[0].ropes
    assert (rope.type, rope.frequency_factors) == ("llama3", (1.0, 1.0, 2.0, 8.0))


def test_cut_off_anywhere(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in (0, 3, 6, 20, 100, 1000, len(whole) // 2, len(whole) - 64):
        cut.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match="cut") as error:
            load_model(str(cut))
        assert str(cut) in str(error.value)


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04" * 20)
    with pytest.raises(WeightsError, match="not a little-endian GGUF"):
        load_model(str(path))
    with pytest.raises(ConfigError, match="mamba"):
        load_model(str(write_gguf(path, architecture="mamba")))
    tensors = gguf_tensors(CONFIG)
    lacking = {name: w for name, w in tensors.items() if name != "blk.1.ffn_up.weight"}
    with pytest.raises(WeightsError, match=r"layers\.1\.mlp\.up_proj"):
        load_model(str(write_gguf(path, tensors=lacking)))
    narrow = tensors | {"blk.1.ffn_up.weight": np.zeros((48, 31), np.float32)}
    with pytest.raises(WeightsError, match=r"blk\.1\.ffn_up.*\(48, 32\).*\(48, 31\)"):
        load_model(str(write_gguf(path, tensors=narrow)))
    strange = tensors | {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    with pytest.raises(WeightsError, match="attn_sinks"):
        load_model(str(write_gguf(path, tensors=strange)))
    integers = tensors | {"output_norm.weight": np.zeros(32, np.int32)}
    with pytest.raises(WeightsError, match="I32 is not supported"):
        load_model(str(write_gguf(path, tensors=integers)))


def split_in(folder: Path, count: int, **changes: Any) -> Path:
    """The tiny checkpoint in parts as llama-gguf-split writes them; the path of the first."""
    tensors = list(gguf_tensors(CONFIG).items())
    for number in range(count):
        name = f"m-{number + 1:05}-of-{count:05}.gguf"
        split = {"split.no": number, "split.count": count, "split.tensors.count": len(tensors)}
        part, fields = dict(tensors[number::count]), split | changes.get(f"part{number}", {})
        if number == 0:
            write_gguf(folder / name, tensors=part, extra=fields)
        else:
            write_gguf_file(folder / name, "llama", fields, part)
    return folder / f"m-00001-of-{count:05}.gguf"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_split_file_is_the_same_model(count: int, tmp_path: Path) -> None:
    """Given by its first part, or by its directory."""
    whole = load_model(str(write_gguf(tmp_path / "whole.gguf")))
    (tmp_path / "split").mkdir()
    first = split_in(tmp_path / "split", count)
    for given in (first, first.parent):
        parts = load_model(str(given))
        assert parts.config == whole.config
        for one, other in zip(
            jax.tree.leaves(parts.params), jax.tree.leaves(whole.params), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_parts_of_a_split_file_that_do_not_fit(tmp_path: Path) -> None:
    first = split_in(tmp_path, 3)
    second, third = (tmp_path / f"m-0000{n}-of-00003.gguf" for n in (2, 3))
    with pytest.raises(WeightsError, match=r"is part 2 of 3 of a split .* -00001-of-00003"):
        load_model(str(second))
    kept = third.read_bytes()
    third.write_bytes(second.read_bytes())
    with pytest.raises(WeightsError, match=r"00003-of-00003.gguf is not part 3 .* is in both"):
        load_model(str(first))
    third.unlink()
    with pytest.raises(WeightsError, match=r"split into 3 files, and m-00003-of-00003\.gguf is mi"):
        load_model(str(first))
    third.write_bytes(kept)
    renamed = first.rename(tmp_path / "model.gguf")
    with pytest.raises(WeightsError, match=r"part 1 of 3 of a split .* name ends in -00001-of-"):
        load_model(str(renamed))
    split_in(tmp_path, 3, part1={"split.count": 4})
    with pytest.raises(WeightsError, match=r"00002-of-00003.gguf is not part 2 .* is another"):
        load_model(str(first))
