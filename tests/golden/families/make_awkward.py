"""Asks PyTorch transformers about sizes that divide badly; see `make.py`.

    /tmp/torch311/bin/python -m tests.golden.families.make_awkward

writes cases_awkward.json and logits_awkward.npz beside it. Six heads share two KV heads, no size is
a power of two, and config.json lacks every field that it may lack: what is at its default is not
in the file.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import transformers

from jax_engine.models.registry import family_of
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
# As many KV heads as heads; factors for each pair of numbers of a head of another size.
_NOT_THESE = {"gpt_neox", "gpt_neox_in_turn", "phi3_short", "phi3_long"}


def awkward() -> Cases:
    """The first case of each family, in these sizes; and what Falcon calls them."""
    found: Cases = {}
    for name, (kind, fields) in FIRST.items():
        if "num_key_value_heads" in fields and name not in _NOT_THESE:
            found[f"{name}_awkward"] = kind, fields | SIZES
    falcon = {"vocab_size": 67, "hidden_size": 144, "num_attention_heads": 6}
    return found | {f"{name}_awkward": (kind, f | falcon) for name, (kind, f) in FALCONS.items()}


def spare(folder: Path, kind: str) -> dict[str, Any]:
    """Takes from config.json what it may lack: what is at the class's default."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    fields = msgspec.structs.fields(family_of(config["architectures"][0]).Fields)
    needed = {one.encode_name for one in fields if one.required} | {"architectures", "model_type"}
    defaults = getattr(transformers, f"{kind}Config")().to_dict()
    return {k: v for k, v in config.items() if k in needed or defaults.get(k, ...) != v}


if __name__ == "__main__":
    make.CASES.clear()
    make.CASES.update(awkward())
    make.main("_awkward", spare)
