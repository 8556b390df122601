"""A GGUF file of a billion random numbers, which is read from memory however large the caches are.

The shape is that of Llama 3.2 1B, with the tokenizer of the default model.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.compare.checkpoint import copy_fields
from jax_engine.models.checkpoints.default_model import default_model_path

LAYERS, WIDTH, MLP_WIDTH, HEADS, KV_HEADS, HEAD_DIM = 16, 2048, 8192, 32, 8, 64
SIZES = {
    "llama.block_count": LAYERS,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": MLP_WIDTH,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.rope.dimension_count": HEAD_DIM,
}
LAYER = {
    "attn_q": (HEADS * HEAD_DIM, WIDTH),
    "attn_k": (KV_HEADS * HEAD_DIM, WIDTH),
    "attn_v": (KV_HEADS * HEAD_DIM, WIDTH),
    "attn_output": (WIDTH, HEADS * HEAD_DIM),
    "ffn_gate": (MLP_WIDTH, WIDTH),
    "ffn_up": (MLP_WIDTH, WIDTH),
    "ffn_down": (WIDTH, MLP_WIDTH),
}
STANDARD_DEVIATION = 0.02


def large_file(folder: Path) -> Path:
    """Writes the file, in blocks of Q4_0, unless it is there. Norms are ones."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, quants

    path = folder / "1b-Q4_0.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(default_model_path())
    partial = path.with_suffix(".partial")
    writer = GGUFWriter(partial, "llama")
    copy_fields(reader, writer, SIZES)
    for name, value in SIZES.items():
        writer.add_uint32(name, value)
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(2)  # of GGML's blocks, since 2023
    rng = np.random.default_rng(0)
    kind = GGMLQuantizationType.Q4_0
    vocab_size = len(reader.fields["tokenizer.ggml.tokens"].contents())
    for name, shape in _shapes(vocab_size):
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
        else:
            values = rng.standard_normal(shape, np.float32) * np.float32(STANDARD_DEVIATION)
            writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return partial.rename(path)


def _shapes(vocab_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (vocab_size, WIDTH)
    yield "output_norm.weight", (WIDTH,)
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (WIDTH,)
        for name, shape in LAYER.items():
            yield f"blk.{layer}.{name}.weight", shape
