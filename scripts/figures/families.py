"""What differs between families: where a layer's norms are, and how layers differ from each other.

Both pictures are drawn from the specifications of the tests' tiny checkpoints. A placement of norms
that a family has and no panel shows is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jax_engine.model_spec import ExpertsSpec, LayerSpec, NormSpec
from jax_engine.models.model_config import ModelConfig
from scripts.families.models import DEPTH, Family, families, layers_of
from scripts.families.routing import sparse
from scripts.families.words import placement, rotation, window
from scripts.figures.svg import PHONE, Drawing

# A family for each placement of norms, and one with experts.
PANELS = ("llama", "olmo2", "gemma2", "gptj", "gpt_neox", "qwen2_moe")
WIDTH, STREAM = 640, 24  # of the picture, of the stream in its panel
TALL, GAP = 22, 12
NARROW_ROWS = (10, 290, 648)  # where the rows of the narrow one begin
FILLS = {"norm": "b", "attention": "a", "MLP": "c", "router": "d"}
CELL, LABELS = 12, 152  # a layer; where the labels end


@dataclass(frozen=True)
class Panels:
    """How panels lie: so many beside each other, and where a panel's boxes are."""

    columns: int
    width: float
    one: tuple[float, float]  # the middle of a single column of boxes, and how wide they are
    two: tuple[float, float, float]  # the middles of two, and how wide
    shared: float  # the width of the box of a shared expert
    sizes: tuple[float, float, float, float]  # of the title, the caption, boxes, the shared expert
    tall: float  # what the caption takes


WIDE = Panels(3, 213, (112, 112), (78, 156, 70), 36, (13, 10, 11, 10), 30)
NARROW = Panels(2, 179, (84, 84), (74, 140, 64), 44, (13, 12, 12, 12), 46)


def draw() -> dict[str, Drawing]:
    return {
        "family-layers": _placements(WIDE),
        "family-layers-narrow": _placements(NARROW),
        "family-patterns": _patterns(),
        "family-patterns-narrow": _narrow_patterns(),
    }


def _placements(lies: Panels) -> Drawing:
    """A layer of each kind, from top to bottom."""
    by_name = {family.name: family for family in families()}
    shown = {placement(by_name[name].specs[0].layers[0]) for name in PANELS}
    every = {kind for family in families() for kind in _kinds(family)}
    if shown != every:
        raise LookupError(f"norms are placed as no panel shows: {every - shown}")
    wide = lies is WIDE
    size = (WIDTH, 612) if wide else (PHONE, 946)
    picture = Drawing(*size, "Where the norms of a layer are, in six families")
    for number, name in enumerate(PANELS):
        x = number % lies.columns * lies.width + 4 * wide
        y = number // lies.columns * 322 + 10 if wide else NARROW_ROWS[number // lies.columns]
        _panel(picture, x, y, by_name[name], lies)
    return picture


def _kinds(family: Family) -> set[str]:
    """Where the norms of its models are."""
    return {placement(layer) for spec in family.specs for layer in spec.layers}


def _panel(picture: Drawing, x: float, y: float, family: Family, lies: Panels) -> None:
    layer = family.specs[0].layers[0]
    kind = placement(layer)
    says, count = f"norms: {kind}", sum(kind in _kinds(one) for one in families())
    if isinstance(layer.mlp, ExpertsSpec):
        says, count = "with experts", sum(one.has_experts for one in families())
    lines = [f"{says} ({count} families)"] if lies is WIDE else [says, f"({count} families)"]
    picture.text(x, y, _short(family), anchor="start", size=lies.sizes[0])
    for number, line in enumerate(lines):
        picture.text(x, y + 17 + 15 * number, line, anchor="start", size=lies.sizes[1])
    top = bottom = y + lies.tall
    behind = len(picture.elements)
    for shared, columns in _parts(layer):
        bottom = _part(picture, x, bottom + GAP, shared, columns, lies)
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


def _part(
    picture: Drawing, x: float, y: float, shared: str, columns: Columns, lies: Panels
) -> float:
    """Boxes beside the stream, and the sum with it. Returns where the sum is."""
    *middles, wide = lies.two if len(columns) == 2 else lies.one
    centers = [x + middle for middle in middles]
    middle, stream = sum(centers) / len(centers), x + STREAM
    picture.line([(stream, y), (middle if shared else centers[-1], y)], width=1)
    if shared:
        picture.arrow(middle, y, middle, y + GAP)
        left, right = centers[0] - wide / 2, centers[-1] + wide / 2
        picture.box(left, y + GAP, right - left, TALL, shared, FILLS[shared], lies.sizes[2])
        y += GAP + TALL
    ends = [
        _boxes(picture, center, y, wide, column, lies)
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


def _boxes(
    picture: Drawing, center: float, y: float, wide: float, column: Sequence[Box], lies: Panels
) -> float:
    """A column of boxes. Returns where its result is added."""
    left = center - wide / 2
    for label in column:
        picture.arrow(center, y, center, y + GAP)
        y += GAP
        name = label if isinstance(label, str) else "router"
        picture.box(left, y, wide, TALL, name, FILLS[name], lies.sizes[2])
        if isinstance(label, ExpertsSpec):
            _experts(picture, left, y, wide, label, lies)
            y += TALL + GAP
        y += TALL
    return y + GAP


def _experts(
    picture: Drawing, left: float, y: float, wide: float, experts: ExpertsSpec, lies: Panels
) -> None:
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
        x = left + wide + 4 + lies.shared / 2
        picture.line([(left + wide / 2, y - GAP / 2), (x, y - GAP / 2)], width=1)
        picture.arrow(x, y - GAP / 2, x, top)
        half = lies.shared / 2
        picture.box(x - half, top, 2 * half, TALL, "shared", FILLS["MLP"], lies.sizes[3])
        ends.append(x)
    for x in ends:
        picture.line([(x, bottom), (x, bottom + GAP), (left + wide / 2, bottom + GAP)], width=1)


Row = tuple[str, list[LayerSpec], str]
LEGEND = (
    ("a", "", "window"),
    ("free", "", "all positions"),
    ("free", "–", "no RoPE"),
    ("free", "E", "experts"),
)
DIFFER = "Layers that differ, family by family"


def _patterns() -> Drawing:
    """A row of layers for each family whose layers differ."""
    rows = _rows()
    picture = Drawing(WIDTH + 16, 34 + 22 * len(rows), DIFFER)
    x = float(LABELS)
    for fill, mark, says in LEGEND:
        picture.box(x, 4, CELL, CELL, mark, fill, 10)
        picture.text(x + CELL + 5, 11, says, anchor="start", size=10)
        x += 32 + 6.2 * len(says)
    for number, (title, layers, says) in enumerate(rows):
        y = 32 + 22 * number
        picture.text(LABELS - 6, y + CELL / 2, title, anchor="end", size=11)
        _cells(picture, LABELS, y, CELL, layers, 10)
        right = LABELS + DEPTH * CELL + 6
        picture.text(right, y + CELL / 2, says, anchor="start", size=10)
    return picture


def _narrow_patterns() -> Drawing:
    """For a phone: the family and how its layers differ, and its layers below."""
    rows = _rows()
    picture = Drawing(PHONE, 58 + 44 * len(rows), DIFFER)
    for number, (fill, mark, says) in enumerate(LEGEND):
        x, y = 8 + 150 * (number % 2), 4 + 22 * (number // 2)
        picture.box(x, y, 14, 14, mark, fill, 12)
        picture.text(x + 20, y + 7, says, anchor="start")
    for number, (title, layers, says) in enumerate(rows):
        y = 66 + 44 * number
        picture.text(8, y, f"{title}: {says}", anchor="start")
        _cells(picture, 8, y + 11, 14, layers, 12)
    return picture


def _rows() -> list[Row]:
    rows = [row for family in families() if (row := _differing(family)) is not None]
    return sorted(rows, key=lambda row: ("window" not in row[2], row[0].casefold()))


def _cells(
    picture: Drawing, x: float, y: float, side: float, layers: list[LayerSpec], size: float
) -> None:
    for place, layer in enumerate(layers):
        fill = "free" if layer.attention.window is None else "a"
        picture.box(x + place * side, y, side, side, _mark(layer), fill, size)


def _mark(layer: LayerSpec) -> str:
    if isinstance(layer.mlp, ExpertsSpec):
        return "E"
    one = layer.attention
    return "–" if not one.ropes and one.alibi_slopes is None else ""


def _differing(family: Family) -> Row | None:
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
        says.append(rotation(config).replace(" in ", " ").removesuffix(" layers"))
    if len({layer.mlp for layer in layers}) > 1:
        says.append("E: " + sparse(config).replace("all but the", "not"))
    return says


def _short(family: Family) -> str:
    return family.title.partition(",")[0].partition(" (")[0]
