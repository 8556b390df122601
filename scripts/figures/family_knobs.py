"""Which parts of Llama's specification some families change, from the specifications themselves."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from jax_engine.models import registry
from scripts.figures.svg import Drawing
from tests.golden.families.checkpoints import cases

SIZE = 15
FAMILIES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen 2",
    "qwen3": "Qwen 3",
    "gemma2": "Gemma 2",
    "olmo2": "OLMo 2",
    "gpt_neox": "GPT-NeoX",
    "gpt_oss": "gpt-oss",
}
POSITIONS = ("rope", "rotary_dim", "alibi_slopes", "learned_positions")
SIZES = ("width", "repeats", "num_heads", "num_kv_heads", "head_dim", "theta", "eps", "vocab_size")
COLUMNS = ("RoPE", "norms", "attn.", "MLP", "add", "ends")


def changes(one: Any, other: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the fields that differ; of layers and groups those of the last."""
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        for field in dataclasses.fields(one):
            if field.name not in SIZES:
                pair = getattr(one, field.name), getattr(other, field.name)
                yield from changes(*pair, (*path, field.name))
    elif path[-1:] in (("groups",), ("pattern",)):
        yield from changes(one[-1], other[-1], path)
    elif one != other:
        yield path


def column(path: tuple[str, ...]) -> str:
    """Under which heading a field stands."""
    if set(path) & set(POSITIONS):
        return "RoPE"
    if any("norm" in name for name in path) and "attention" not in path:
        return "norms"
    if "attention" in path:
        return "attn."
    if "mlp" in path:
        return "MLP"
    return "add" if set(path) & {"parallel", "residual_factor"} else "ends"


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 62 + 30 * len(FAMILIES), "What families change in Llama's specification")
    known = cases()
    specs = {name: registry.config_from_hf(known[name]["config"]).spec for name in FAMILIES}
    for i, name in enumerate(COLUMNS):
        picture.text(117 + i * 59, 18, name, size=SIZE)
    for row, (case, title) in enumerate(FAMILIES.items()):
        y = 36 + row * 30
        picture.text(82, y + 13, title, anchor="end", size=SIZE)
        turned = [column(path) for path in changes(specs["llama"], specs[case])]
        for i, name in enumerate(COLUMNS):
            count = turned.count(name)
            fill = "b" if count else "free"
            picture.box(89 + i * 59, y, 56, 26, str(count or ""), fill, SIZE)
    picture.text(96, 50 + 30 * len(FAMILIES), "how many fields differ", anchor="start", size=SIZE)
    return {"family-knobs": picture}
