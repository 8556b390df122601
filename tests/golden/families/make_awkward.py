"""Asks PyTorch transformers about sizes that divide badly; see `make.py`.

    /tmp/torch311/bin/python -m tests.golden.families.make_awkward

writes cases_awkward.json and logits_awkward.npz beside it. Six heads share two KV heads, and no
size is a power of two. `sparing.py` then takes from config.json every field that it may lack.
"""

from typing import Any

from tests.golden.families import make
from tests.golden.families.first_cases import FALCON, FIRST, Cases

SIZES: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 144,
    "intermediate_size": 44,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
FALCONS: Cases = {
    "falcon_40b": ("Falcon", FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True}),
    "falcon_rw": (
        "Falcon",
        FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    ),
}
# As many KV heads as heads; heads that are as wide as the model; factors for each pair of numbers
# of a head of another size.
_NOT_THESE = {"helium", "gpt_neox", "gpt_neox_in_turn", "phi3_short", "phi3_long"}


def awkward(first: Cases) -> Cases:
    """The first case of each family, in these sizes."""
    return {
        f"{name}_awkward": (kind, fields | SIZES)
        for name, (kind, fields) in first.items()
        if "num_key_value_heads" in fields and name not in _NOT_THESE
    }


def falcons() -> Cases:
    """What Falcon calls the sizes."""
    falcon = {"vocab_size": 67, "hidden_size": 144, "num_attention_heads": 6}
    return {f"{name}_awkward": (kind, f | falcon) for name, (kind, f) in FALCONS.items()}


if __name__ == "__main__":
    make.CASES.clear()
    make.CASES.update(awkward(FIRST) | falcons())
    make.main("_awkward")
