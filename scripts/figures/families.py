"""What differs between families: where a layer's norms are, and how layers differ from each other.

Both pictures are drawn from the specifications of the tests' tiny checkpoints. A placement of norms
that a family has and no panel shows is an error.
"""

from collections.abc import Sequence

from jax_engine.layer_spec import ExpertsSpec, LayerSpec, NormSpec
from jax_engine.models.config import ModelConfig
from scripts.families.models import DEPTH, Family, families, layers_of
from scripts.families.routing import sparse
from scripts.families.words import placement, rotation, window
from scripts.figures.svg import Drawing

# A family for each placement of norms, and one with experts.
PANELS = ("llama", "olmo2", "gemma2", "gptj", "gpt_neox", "qwen2_moe")
WIDTH, PANEL, STREAM = 640, 213, 24  # of the picture, of a panel, of the stream in its panel
TALL, GAP = 22, 12
FILLS = {"norm": "b", "attention": "a", "MLP": "c", "router": "d"}
CELL, LABELS = 13, 152  # a layer; where the labels end


def draw() -> dict[str, Drawing]:
    return {"family-layers": _placements(), "family-patterns": _patterns()}


def _placements() -> Drawing:
    """A layer of each kind, from top to bottom."""
    by_name = {family.name: family for family in families()}
    shown = {placement(by_name[name].specs[0].layers[0]) for name in PANELS}
    every = {kind for family in families() for kind in _kinds(family)}
    if shown != every:
        raise LookupError(f"norms are placed as no panel shows: {every - shown}")
    picture = Drawing(WIDTH, 612, "Where the norms of a layer are, in six families")
    for number, name in enumerate(PANELS):
        x, y = number % 3 * PANEL + 4, number // 3 * 322 + 10
        _panel(picture, x, y, by_name[name])
    return picture


def _kinds(family: Family) -> set[str]:
    """Where the norms of its models are."""
    return {placement(layer) for spec in family.specs for layer in spec.layers}


def _panel(picture: Drawing, x: float, y: float, family: Family) -> None:
    layer = family.specs[0].layers[0]
    kind = placement(layer)
    caption = f"norms: {kind} ({sum(kind in _kinds(one) for one in families())} families)"
    if isinstance(layer.mlp, ExpertsSpec):
        caption = f"with experts ({sum(one.has_experts for one in families())} families)"
    picture.text(x, y, _short(family), anchor="start", size=13)
    picture.text(x, y + 17, caption, anchor="start", size=10)
    top = bottom = y + 30
    behind = len(picture.elements)
    for shared, columns in _parts(layer):
        bottom = _part(picture, x, bottom + GAP, shared, columns)
    picture.arrow(x + STREAM, top, x + STREAM, bottom + 20)
    picture.elements.insert(behind, picture.elements.pop())


Box = str | ExpertsSpec
Columns = Sequence[Sequence[Box]]


def _parts(layer: LayerSpec) -> list[tuple[str, Columns]]:
    """The parts one after another: a norm that columns share, and what is in each column."""
    network = layer.mlp if isinstance(layer.mlp, ExpertsSpec) else "MLP"
    attention = _column(layer.input_norm, "attention", layer.attention_output_norm)
    mlp = _column(layer.mlp_norm, network, layer.mlp_output_norm)
    if not layer.parallel:
        return [("", [attention]), ("", [mlp])]
    return [("norm", [attention[1:], mlp])] if layer.mlp_norm is None else [("", [attention, mlp])]


def _column(before: NormSpec | None, part: Box, after: NormSpec | None) -> list[Box]:
    first: list[Box] = ["norm"] * (before is not None)
    return first + [part] + ["norm"] * (after is not None)


def _part(picture: Drawing, x: float, y: float, shared: str, columns: Columns) -> float:
    """Boxes beside the stream, and the sum with it. Returns where the sum is."""
    centers, wide = ([x + 78, x + 156], 70) if len(columns) == 2 else ([x + 112], 112)
    middle, stream = sum(centers) / len(centers), x + STREAM
    picture.line([(stream, y), (middle if shared else centers[-1], y)], width=1)
    if shared:
        picture.arrow(middle, y, middle, y + GAP)
        left, right = centers[0] - wide / 2, centers[-1] + wide / 2
        picture.box(left, y + GAP, right - left, TALL, shared, FILLS[shared], 11)
        y += GAP + TALL
    ends = [
        _boxes(picture, center, y, wide, column)
        for center, column in zip(centers, columns, strict=True)
    ]
    bottom = max(ends)
    for center, column in zip(centers, columns, strict=True):
        if not isinstance(column[-1], ExpertsSpec):
            picture.line([(center, bottom - GAP), (center, bottom)], width=1)
    picture.line([(centers[-1], bottom), (stream + 14, bottom)], width=1)
    picture.arrow(stream + 16, bottom, stream + 8, bottom)
    picture.box(stream - 7, bottom - 7, 14, 14, "+", "paper")
    return bottom


def _boxes(picture: Drawing, center: float, y: float, wide: float, column: Sequence[Box]) -> float:
    """A column of boxes. Returns where its result is added."""
    left = center - wide / 2
    for label in column:
        picture.arrow(center, y, center, y + GAP)
        y += GAP
        name = label if isinstance(label, str) else "router"
        picture.box(left, y, wide, TALL, name, FILLS[name], 11)
        if isinstance(label, ExpertsSpec):
            _experts(picture, left, y, wide, label)
            y += TALL + GAP
        y += TALL
    return y + GAP


def _experts(picture: Drawing, left: float, y: float, wide: float, experts: ExpertsSpec) -> None:
    """Under the router those of one token, between the others; beside it the shared one."""
    count, chosen = experts.router.num_experts, experts.router.top_k
    top, bottom, each = y + TALL + GAP, y + 2 * TALL + GAP, wide / count
    picked = [(2 * i + 1) * count // (2 * chosen) for i in range(chosen)]
    ends = [left + (number + 0.5) * each for number in picked]
    for number in range(count):
        fill = FILLS["MLP"] if number in picked else "free"
        picture.box(left + number * each + 1, top, each - 2, TALL, fill=fill)
    for x in ends:
        picture.arrow(x, y + TALL, x, top)
    if experts.shared is not None:
        x = left + wide + 21
        picture.line([(left + wide / 2, y - GAP / 2), (x, y - GAP / 2)], width=1)
        picture.arrow(x, y - GAP / 2, x, top)
        picture.box(x - 17, top, 34, TALL, "shared", FILLS["MLP"], 9)
        ends.append(x)
    for x in ends:
        picture.line([(x, bottom), (x, bottom + GAP), (left + wide / 2, bottom + GAP)], width=1)


def _patterns() -> Drawing:
    """A row of layers for each family whose layers differ."""
    rows = [row for family in families() if (row := _differing(family)) is not None]
    rows.sort(key=lambda row: ("window" not in row[2], row[0].casefold()))
    picture = Drawing(WIDTH + 16, 34 + 22 * len(rows), "Layers that differ, family by family")
    legend = (("a", "", "window"), ("free", "", "all positions"), ("free", "–", "no RoPE"))
    x = float(LABELS)
    for fill, mark, says in (*legend, ("free", "E", "experts")):
        picture.box(x, 4, CELL, CELL, mark, fill, 10)
        picture.text(x + CELL + 5, 11, says, anchor="start", size=10)
        x += 32 + 6.2 * len(says)
    for number, (title, layers, says) in enumerate(rows):
        y = 32 + 22 * number
        picture.text(LABELS - 6, y + CELL / 2, title, anchor="end", size=11)
        for place, layer in enumerate(layers):
            fill = "free" if layer.attention.window is None else "a"
            picture.box(LABELS + place * CELL, y, CELL, CELL, _mark(layer), fill, 10)
        right = LABELS + DEPTH * CELL + 6
        picture.text(right, y + CELL / 2, says, anchor="start", size=10)
    return picture


def _mark(layer: LayerSpec) -> str:
    if isinstance(layer.mlp, ExpertsSpec):
        return "E"
    one = layer.attention
    return "–" if not one.ropes and one.alibi_slopes is None else ""


def _differing(family: Family) -> tuple[str, list[LayerSpec], str] | None:
    """The family's name, the layers of its model that has most kinds, and how they differ."""
    kinds = [len(set(layers_of(spec))) for spec in family.specs]
    if max(kinds) == 1:
        return None
    config = family.configs[kinds.index(max(kinds))]
    return _short(family), layers_of(config.spec), ", ".join(_differences(config))


def _differences(config: ModelConfig) -> list[str]:
    layers = layers_of(config.spec)
    says = []
    if len({layer.attention.window for layer in layers}) > 1:
        says.append(window(config))
    if len({layer.attention.rope for layer in layers}) > 1:
        says.append(rotation(config))
    if len({layer.mlp for layer in layers}) > 1:
        says.append(f"experts: {sparse(config)}")
    return says


def _short(family: Family) -> str:
    return family.title.partition(",")[0].partition(" (")[0]
