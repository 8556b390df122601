"""How much a KV cache takes and what fits: the arithmetic of the calculator in the tutorial.

docs/javascripts/kv_calculator.js computes the same; a test compares them on many settings.

The machine of the paper: Table 1 has 15.7K slots, Figure 13 has 7 requests and 30.

>>> found = sizes(MODELS["OPT-13B"], GPUS["A100 40 GB"], kv_bits=16, **PAPER)
>>> found["slots"], found["reserved"], found["sequences"]
(15440, 7, 30)
"""

from dataclasses import dataclass

BLOCK_SIZE = 16
SHARE = 0.9  # of the memory that an engine uses, vLLM's gpu_memory_utilization
BILLION, GIB = 10**9, 2**30


@dataclass(frozen=True)
class Model:
    """`parameters` in billions, with 16 bits each; the others as in its published config.json."""

    parameters: float
    layers: int
    kv_heads: int
    head_dim: int


MODELS = {
    "SmolLM2-135M": Model(0.135, 30, 3, 64),
    "OPT-13B": Model(13.0, 40, 40, 128),
    "Llama-2-7B": Model(6.74, 32, 32, 128),
    "Llama-3-8B": Model(8.03, 32, 8, 128),
    "Llama-3-70B": Model(70.6, 80, 8, 128),
    "Qwen2.5-32B": Model(32.8, 64, 8, 128),
    "Mistral-7B": Model(7.25, 32, 8, 128),
}
GPUS = {
    "RTX 4090 24 GB": 24, "A100 40 GB": 40, "L40S 48 GB": 48, "A100 80 GB": 80, "H100 80 GB": 80,
    "H200 141 GB": 141, "B200 180 GB": 180, "MI300X 192 GB": 192,
}  # fmt: skip
"""Gigabytes by their names. A card of 40 GB has about 40 x 2^30 bytes (a B200 is also announced
with 192 GB, and sold with 180)."""
PAPER = {"context": 512, "limit": 2048, "batch": 32}
"""ShareGPT's mean length, about, and OPT's longest: for OPT-13B on an A100 with 40 GB."""
BITS = {"bfloat16": 16, "fp8 or int8": 8}
CONTEXTS = (64, 65536)
"""The least and the most tokens of a sequence; sliders go by quarters of powers of two."""


BATCHES = (1, 4096)
"""The fewest and the most sequences at once."""


def sizes(
    model: Model, gpu: int, *, kv_bits: int, context: int, limit: int, batch: int
) -> dict[str, int]:
    """Bytes, and sequences that fit: in blocks, and where `limit` tokens are reserved for each.

    Args:
        gpu: gigabytes of 2^30 bytes.
        context: tokens of each sequence now.
        batch: sequences that there are.
    """
    token = model.layers * 2 * model.kv_heads * model.head_dim * kv_bits // 8
    weights = round(model.parameters * BILLION) * 2
    cache = max(0, int(gpu * GIB * SHARE) - weights)
    blocks = cache // (token * BLOCK_SIZE)
    taken = -(-context // BLOCK_SIZE)
    sequences, reserved = blocks // taken, cache // (token * max(limit, context))
    return {
        "token": token,
        "weights": weights,
        "cache": cache,
        "slots": blocks * BLOCK_SIZE,
        "sequences": sequences,
        "reserved": reserved,
        "batch": batch * taken * BLOCK_SIZE * token,
        "running": min(batch, sequences),
        "running_reserved": min(batch, reserved),
        "unused_in_blocks": taken * BLOCK_SIZE - context,
        "unused_in_reservation": max(limit, context) - context,
    }
