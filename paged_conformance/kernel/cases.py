"""Ragged batches over a paged cache, in few array shapes.

A kernel may be compiled for each shape, so shapes come from short lists, and what is drawn
(lengths, block tables, content, the layer) varies within them. How large the shapes are is the
kernel's choice: what is interpreted gets small ones.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paged_conformance.kernel.arrays import LARGEST, dtype_of
from paged_conformance.kernel.sizes import Geometry, Sizes

type Options = dict[str, Any]
# A step as plain JSON: all that its arrays are made from.
type Step = dict[str, Any]


@dataclass(frozen=True, repr=False)
class Case:
    """One step: the arguments of `paged_attention`, as NumPy arrays.

    Attributes:
        q: [T, H, D].
        kv_cache: [L, 2, N, K, B, D]; [L, 1, N, K, B, D] where the values are the keys.
        block_tables: [S, W].
        context_lens: [S]
        query_start_loc: [S + 1].
        kv_scales: [L, 2 or 1, K] of an 8-bit cache, in float32.
        layer: which of the L layers.
        decode_only: promised: no sequence has several query tokens.
        made_of: the step that it was made from, as plain JSON.
    """

    q: np.ndarray
    kv_cache: np.ndarray
    block_tables: np.ndarray
    context_lens: np.ndarray
    query_start_loc: np.ndarray
    kv_scales: np.ndarray | None = None
    layer: int = 1
    decode_only: bool = False
    made_of: Step | None = None

    def __repr__(self) -> str:
        return f"case_of({self.made_of})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What Hypothesis prints, which would show all fields of a dataclass."""
        printer.text(repr(self))

    @property
    def block_size(self) -> int:
        return int(self.kv_cache.shape[4])

    @property
    def scale(self) -> float:
        """The scale is not quite what models take, which a kernel might take unasked."""
        return 1.3 / math.sqrt(self.q.shape[2])

    @property
    def num_tokens(self) -> int:
        """Tokens that are not padding."""
        return int(self.query_start_loc[-1])

    @property
    def query_lens(self) -> np.ndarray:
        return np.diff(self.query_start_loc)

    def queries_of(self, seq: int) -> slice:
        """The tokens of a sequence."""
        return slice(*self.query_start_loc[seq : seq + 2])

    def blocks_of(self, seq: int) -> set[int]:
        """The blocks that a sequence's context lies in."""
        count = -(-int(self.context_lens[seq]) // self.block_size)
        return set(self.block_tables[seq, :count].tolist())

    @property
    def room(self) -> int:
        """Tokens for which the block tables have room."""
        return int(self.block_tables.shape[1]) * self.block_size

    def with_cache(self, kv_cache: np.ndarray) -> "Case":
        return replace(self, kv_cache=kv_cache)

    def as_dtype(self, dtype: str) -> "Case":
        """Queries and cache rounded to a float dtype."""
        q, kv_cache = (one.astype(dtype_of(dtype)) for one in (self.q, self.kv_cache))
        # What is rounded twice is not what a step of that dtype makes.
        made_of = self._also(dtype=dtype) if self.q.dtype == np.float32 else None
        return replace(self, q=q, kv_cache=kv_cache, made_of=made_of)

    def values_in_keys(self) -> "Case":
        """A cache [L, 1, N, K, B, D]: the values are the keys."""
        return replace(self, kv_cache=self.kv_cache[:, :1], made_of=self._also(keys_alone=True))

    def quantized(self, dtype: str) -> "Case":
        """The cache in 8 bits, with another scale for each layer, key or value, and head."""
        layers, kv, _, heads, _, _ = self.kv_cache.shape
        scales = np.linspace(0.01, 0.03, layers * kv * heads).reshape(layers, kv, heads)
        scales = scales.astype(np.float32)
        exact = self.kv_cache.astype(np.float32) / scales[:, :, None, :, None, None]
        largest = LARGEST[dtype]
        clipped = np.clip(np.rint(exact) if dtype == "int8" else exact, -largest, largest)
        cache = clipped.astype(dtype_of(dtype))
        return replace(self, kv_cache=cache, kv_scales=scales, made_of=self._also(cache=dtype))

    def _also(self, **changes: Any) -> Step | None:
        return None if self.made_of is None else self.made_of | changes


Lengths = list[tuple[int, int]]
# One sequence in so many begins with blocks of another one, as after a fork or a cache hit.
ONE_IN = 4


def step_of(
    lengths: Lengths, seed: int, geometry: Geometry, sizes: Sizes, decode_only: bool = False
) -> Step:
    """A step of sequences with the given numbers of (query tokens, earlier tokens), as JSON.

    The seed decides which sequences share blocks, and the layer.
    """
    rng = np.random.default_rng([seed, 1])
    blocks = [-(-sum(one) // geometry[0]) for one in lengths]
    shared = []
    for i in range(len(blocks)):
        other = int(rng.integers(0, i * ONE_IN + 1))
        if other < i and sizes.shared:
            most = min(blocks[i], blocks[other])
            shared.append([i, other, int(rng.integers(0, most + 1))])
    step = {
        "lengths": [list(one) for one in lengths],
        "shared": [share for share in shared if share[2]],
        "seed": seed,
        "geometry": list(geometry),
        "tokens": sizes.tokens,
        "rows": sizes.seqs,
        "context": sizes.context,
        "layers": sizes.layers,
        "layer": int(rng.integers(sizes.layers)),
        "decode_only": decode_only or sizes.decode_only,
    }
    return step if sizes.dtype == "float32" else step | {"dtype": sizes.dtype}


def make_case(
    lengths: Lengths, seed: int, geometry: Geometry, sizes: Sizes, decode_only: bool = False
) -> Case:
    """The case of `step_of`."""
    return case_of(step_of(lengths, seed, geometry, sizes, decode_only))


def case_of(step: Step) -> Case:
    """The arrays of a step; the same ones each time.

    The blocks of a sequence lie anywhere in the pool. `shared` has [row, earlier row, number of
    blocks at the beginning]. Table entries past a context are left over from others.
    """
    block_size, kv_heads, group, dim = step["geometry"]
    rng = np.random.default_rng(step["seed"])
    width = -(-step["context"] // block_size)
    blocks = step["rows"] * width + 2
    lens = np.zeros((step["rows"], 2), np.int32)
    lens[: len(step["lengths"])] = np.array(step["lengths"], np.int32).reshape(-1, 2)
    shape = (step["layers"], 2, blocks, kv_heads, block_size, dim)
    tokens = step["rows"] if step["decode_only"] else step["tokens"]
    case = Case(
        q=rng.standard_normal((tokens, kv_heads * group, dim), np.float32),
        kv_cache=rng.standard_normal(shape, np.float32),
        block_tables=_tables(rng, -(-lens.sum(1) // block_size), (width, blocks), step["shared"]),
        context_lens=lens.sum(1, dtype=np.int32),
        query_start_loc=np.concatenate([[0], lens[:, 0].cumsum()]).astype(np.int32),
        layer=step["layer"],
        decode_only=step["decode_only"],
    )
    if step.get("dtype", "float32") != "float32":
        case = case.as_dtype(step["dtype"])
    if step.get("keys_alone"):
        case = case.values_in_keys()
    if step.get("cache"):
        case = case.quantized(step["cache"])
    return replace(case, made_of=step)


def _tables(
    rng: np.random.Generator, needed: np.ndarray, shape: tuple[int, int], shared: list[list[int]]
) -> np.ndarray:
    """Block tables of (width, blocks in the pool) for sequences that need so many blocks each."""
    width, blocks = shape
    order = rng.permutation(blocks).astype(np.int32)
    # What stands past a context is left over from others.
    tables = rng.integers(0, blocks, (len(needed), width), np.int32)
    for i, count in enumerate(needed):
        tables[i, :count], order = order[:count], order[count:]
    for i, other, count in sorted(shared):
        most = min(count, needed[i], needed[other]) if other < i < len(needed) else 0
        tables[i, :most] = tables[other, :most]
    return tables


# What a call may ask for. True stands for one number a head.
OPTIONS: dict[str, Options] = {
    "plain": {},
    "window": {"window": 5},
    "wide-window": {"window": True, "soft_cap": 1.5},
    "soft-cap": {"soft_cap": 1.5},
    "alibi": {"alibi_slopes": True},
    "sinks": {"sinks": True},
    "lse": {"return_lse": True},
    "everything": {
        "window": True, "soft_cap": 3.0, "alibi_slopes": True, "sinks": True, "return_lse": True,
    },
}  # fmt: skip


def fill(options: Options, case: Case) -> Options:
    """The options with numbers that fit the case: a window of a part of it, numbers for heads."""
    head = np.arange(1, case.q.shape[1] + 1)
    numbers = {
        "window": max(case.room * 7 // 16, 1),
        "alibi_slopes": (0.5**head).astype(np.float32),
        "sinks": (3 * np.sin(head)).astype(np.float32),
        "return_lse": True,
    }
    return {name: numbers[name] if value is True else value for name, value in options.items()}


def visible(case: Case, window: int | None = None) -> np.ndarray:
    """[N, B]: which slots some query of the step may read."""
    slots = np.zeros((case.kv_cache.shape[2], case.block_size), bool)
    for table, length, new in zip(
        case.block_tables, case.context_lens, case.query_lens, strict=True
    ):
        first = 0 if window is None else max(0, length - new - window + 1)
        position = np.arange(first, length)
        slots[table[position // case.block_size], position % case.block_size] = True
    return slots


def poisoned(case: Case, window: int | None, poison: float) -> Case:
    """The case with `poison` in every slot that no query of the step may read."""
    read = visible(case, window)[None, None, :, None, :, None]
    cache = np.where(read, case.kv_cache, np.array(poison).astype(case.kv_cache.dtype))
    cache[np.arange(len(cache)) != case.layer] = poison
    return case.with_cache(cache)
