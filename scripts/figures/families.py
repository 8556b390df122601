"""What differs between families: where a layer's norms are, and how layers differ from each other.

Both pictures are drawn from the specifications of the tests' tiny checkpoints. A placement of norms
that some family has and no panel shows is an error.
"""

from collections.abc import Sequence

from jax_engine.layer_spec import ExpertsSpec, LayerSpec
from jax_engine.model_spec import ModelSpec
from scripts.families.models import Family, families, layers_of
from scripts.families.words import placement, rotation, sparse, window
from scripts.figures.svg import Drawing

# One family for each placement of norms, and one with experts.
PANELS = ("llama", "olmo2", "gemma2", "gptj", "gpt_neox", "qwen2_moe")
WIDTH, PANEL, TALL, GAP = 640, 213, 22, 10
STREAM = 26  # from the left of a panel
FILLS = {"norm": "b", "attention": "a", "MLP": "c", "router": "d"}
CELL = 14


def draw() -> dict[str, Drawing]:
    return {"family-layers": layers(), "family-patterns": patterns()}


def layers() -> Drawing:
    """A layer of each kind."""
    _check()
    picture = Drawing(WIDTH, 532, "Where the norms of a layer are, in six families")
    for number, name in enumerate(PANELS):
        family = next(one for one in families() if one.name == name)
        _panel(picture, number % 3 * PANEL + 4, number // 3 * 292 + 12, family)
    return picture


def _panel(picture: Drawing, x: float, y: float, family: Family) -> None:
    layer = family.specs[0].layers[0]
    picture.text(x, y, _short(family), anchor="start", size=13)
    picture.text(x, y + 17, _caption(layer), anchor="start", size=10)
    at = y + 32
    start = at
    for columns in _parts(layer):
        at = _part(picture, x, at + 8, columns, layer)
    picture.arrow(x + STREAM, at - 6 + 2, x + STREAM, at + 16)
    del start


def _caption(layer: LayerSpec) -> str:
    if isinstance(layer.mlp, ExpertsSpec):
        return f"experts: {sum(family.has_experts for family in families())} families"
    kind = placement(layer)
    count = sum(kind in _placements(family) for family in families())
    return f"norms {kind}: {count} families".replace("norms one", "one norm")
