"""How large the steps are that a kernel is tried on."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from paged_conformance.kernel.arrays import FLOATS

type Geometry = tuple[int, int, int, int]


@dataclass(frozen=True, repr=False)
class Sizes:
    """How large the steps are that a kernel is tried on; any of them may be as little as 1.

    Attributes:
        tokens: T.
        seqs: S.
        context: longest context of most steps.
        long_context: longest context of all; steps of it have few sequences. None is 1300, or
            `context` where that is longer, or where it was made shorter than usual.
        tile: a number of query tokens around which something may change.
        step: a number of tokens of context around which something may change.
        geometries: (B, K, H / K, D) of the caches.
        layers: L, where a property is not about that. The layer is drawn.
        dtype: element type of queries and cache, where a property is not about dtypes.
        examples: most examples a property.
        decode_only: only steps in which every sequence has one query token.
        shared: sequences may share blocks.
        shrink: look for the smallest case that fails.
    """

    tokens: int = 192
    seqs: int = 12
    context: int = 320
    long_context: int | None = None
    tile: int = 48
    step: int = 128
    # Two of everything that matters: B below and above a query, K, heads a group, D.
    geometries: tuple[Geometry, ...] = ((4, 2, 2, 8), (16, 1, 3, 16))
    layers: int = 3
    dtype: str = "float32"
    examples: int = 10_000
    decode_only: bool = False
    shared: bool = True
    shrink: bool = True

    @property
    def few_examples(self) -> bool:
        """Calls take so long that each example must be a telling one."""
        return self.examples < 10

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = (f"{n}={v!r}" for n, v in values.items() if v != DEFAULTS[n])
        return f"Sizes({', '.join(changed)})"

    def long(self) -> "Sizes":
        """Steps of the longest contexts, which are small in all else."""
        longest = self.long_context
        if longest is None:
            longest = self.context if self.context < USUAL_CONTEXT else max(self.context, 1300)
        tokens, seqs = min(self.tokens, self.tile + 2), min(self.seqs, 3)
        return replace(self, tokens=tokens, seqs=seqs, context=longest)


DEFAULTS = {field.name: field.default for field in fields(Sizes)}
USUAL_CONTEXT = Sizes.context
GEOMETRY = ("block_size", "kv_heads", "group", "head_dim")
FLAGS = ("decode_only", "shared", "shrink")


def to_numbers(sizes: Sizes) -> dict[str, int]:
    """The sizes that are not as usual, as whole numbers, which is what a target can say.

    The first geometry is `block_size`, `kv_heads`, `group` and `head_dim`; the second has
    `block_size_2` and so on. `dtype` is a place in FLOATS.
    """
    values = {name: getattr(sizes, name) for name in DEFAULTS}
    changed = {name: value for name, value in values.items() if value != DEFAULTS[name]}
    if "dtype" in changed:
        changed["dtype"] = FLOATS.index(sizes.dtype)
    for index, geometry in enumerate(changed.pop("geometries", ())):
        changed |= dict(zip(_names(index), geometry, strict=True))
    return {name: int(value) for name, value in changed.items()}


def of_numbers(numbers: Mapping[str, int]) -> Sizes:
    """The sizes that `to_numbers` wrote; what is not given is as usual.

    Raises:
        ValueError: A name that is not a size, or a number that it cannot have.
    """
    rest = dict(numbers)
    geometries: list[Geometry] = []
    while rest.keys() & {*_names(len(geometries))}:
        names, usual = _names(len(geometries)), Sizes.geometries[0]
        block, heads, group, dim = (rest.pop(n, d) for n, d in zip(names, usual, strict=True))
        geometries.append((block, heads, group, dim))
    unknown = rest.keys() - (DEFAULTS.keys() - {"geometries"})
    if unknown:
        known = [*GEOMETRY, *(name for name in DEFAULTS if name != "geometries")]
        raise ValueError(f"sizes has {min(unknown)!r}; it may have {', '.join(known)}")
    if any(min(geometry) < 1 for geometry in geometries):
        raise ValueError(f"sizes has a geometry with a number below 1: {geometries}")
    for name, value in rest.items():
        least = 0 if name in ("dtype", *FLAGS) else 1
        if value < least or (name == "dtype" and value >= len(FLOATS)):
            raise ValueError(f"sizes has {name}={value}, which is too small or too large")
    values: dict[str, Any] = rest | {name: bool(rest[name]) for name in FLAGS if name in rest}
    if "dtype" in rest:
        values["dtype"] = FLOATS[rest["dtype"]]
    return Sizes(**values) if not geometries else Sizes(**values, geometries=tuple(geometries))


def _names(index: int) -> list[str]:
    return [name if index == 0 else f"{name}_{index + 1}" for name in GEOMETRY]
