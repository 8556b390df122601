"""Ragged batches over a paged cache, drawn by Hypothesis, in few array shapes.

A compiled function is kept for each shape, so shapes come from short lists, and what is drawn
(lengths, block tables, content) varies within them. How large the shapes are is the kernel's
choice: what is interpreted gets small ones.
"""

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
QUANTIZED = {"int8": np.int8, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}


@dataclass(frozen=True)
class Sizes:
    """How large the steps are that a kernel is tried on.

    Attributes:
        tokens: T.
        seqs: S.
        context: longest context.
        tile: a number of query tokens around which something may change.
        geometries: (B, K, H / K, D) of the caches.
        dtype: element type of queries and cache, where a property is not about dtypes.
        examples: most examples a property.
        decode_only: only steps in which every sequence has one query token.
    """

    tokens: int = 192
    seqs: int = 12
    context: int = 320
    tile: int = 48
    # Two of everything that matters: B below and above a query, K, heads a group, D.
    geometries: tuple[tuple[int, int, int, int], ...] = ((4, 2, 2, 8), (16, 1, 3, 16))
    dtype: str = "float32"
    examples: int = 10_000
    decode_only: bool = False

    @property
    def few_examples(self) -> bool:
        """Calls take so long that each example must be a telling one."""
        return self.examples < 10


@dataclass(frozen=True, repr=False)
class Case:
    """One step: the arguments of `paged_attention`, as NumPy arrays.

    Attributes:
        decode_only: promised: no sequence has several query tokens.
        made_of: what `make_case` was given.
    """

    q: np.ndarray
    kv_cache: np.ndarray
    block_tables: np.ndarray
    context_lens: np.ndarray
    query_start_loc: np.ndarray
    kv_scales: np.ndarray | None = None
    layer: int = 1
    decode_only: bool = False
    made_of: str = ""

    def __repr__(self) -> str:
        return f"Case({self.made_of})"

    @property
    def block_size(self) -> int:
        return int(self.kv_cache.shape[4])

    @property
    def scale(self) -> float:
        """Not quite what models take, which a kernel might take unasked."""
        return 1.3 * float(self.q.shape[2]) ** -0.5

    @property
    def num_tokens(self) -> int:
        """Tokens that are not padding."""
        return int(self.query_start_loc[-1])

    @property
    def query_lens(self) -> np.ndarray:
        return np.diff(self.query_start_loc)

    @property
    def room(self) -> int:
        """Tokens for which the block tables have room."""
        return int(self.block_tables.shape[1]) * self.block_size

    def with_cache(self, kv_cache: np.ndarray) -> "Case":
        return replace(self, kv_cache=kv_cache)

    def as_dtype(self, dtype: str) -> "Case":
        """Queries and cache rounded to a float dtype."""
        q, kv_cache = self.q.astype(FLOATS[dtype]), self.kv_cache.astype(FLOATS[dtype])
        return replace(self, q=q, kv_cache=kv_cache, made_of=f"{self.made_of}, {dtype}")

    def quantized(self, dtype: str) -> "Case":
        """The cache in 8 bits, with another scale for each layer, key or value, and head."""
        layers, two, _, heads, _, _ = self.kv_cache.shape
        scales = np.linspace(0.01, 0.03, layers * two * heads).reshape(layers, two, heads)
        scales = scales.astype(np.float32)
        exact = self.kv_cache.astype(np.float32) / scales[:, :, None, :, None, None]
        largest = 127 if dtype == "int8" else 448
        clipped = np.clip(np.rint(exact) if dtype == "int8" else exact, -largest, largest)
        made_of = f"{self.made_of}, {dtype}"
        return replace(
            self, kv_cache=clipped.astype(QUANTIZED[dtype]), kv_scales=scales, made_of=made_of
        )


Lengths = list[tuple[int, int]]


def make_case(
    lengths: Lengths,
    seed: int,
    geometry: tuple[int, int, int, int],
    sizes: Sizes,
    decode_only: bool = False,
) -> Case:
    """A step of sequences with the given numbers of (query tokens, earlier tokens)."""
    decode_only = decode_only or sizes.decode_only
    block_size, kv_heads, group, dim = geometry
    rng = np.random.default_rng(seed)
    width = -(-sizes.context // block_size)
    needed = [-(-(new + old) // block_size) for new, old in lengths]
    blocks = sizes.seqs * width + 2
    order = rng.permutation(blocks).astype(np.int32)
    # What stands past a context is left over from others.
    tables = rng.integers(0, blocks, (sizes.seqs, width), np.int32)
    for i, count in enumerate(needed):
        tables[i, :count], order = order[:count], order[count:]
    lens = np.zeros((sizes.seqs, 2), np.int32)
    lens[: len(lengths)] = np.array(lengths, np.int32).reshape(-1, 2)
    tokens = sizes.seqs if decode_only else sizes.tokens
    case = Case(
        q=rng.standard_normal((tokens, kv_heads * group, dim), np.float32),
        kv_cache=rng.standard_normal((2, 2, blocks, kv_heads, block_size, dim), np.float32),
        block_tables=tables,
        context_lens=lens.sum(1, dtype=np.int32),
        query_start_loc=np.concatenate([[0], lens[:, 0].cumsum()]).astype(np.int32),
        decode_only=decode_only,
        made_of=f"lengths={lengths}, {seed=}, {geometry=}, {decode_only=}",
    )
    return case.as_dtype(sizes.dtype)


@st.composite
def _drawn_lengths(draw: st.DrawFn, sizes: Sizes, decode_only: bool) -> Lengths:
    """(query tokens, earlier tokens) of each sequence; they fit the sizes. These shrink well."""
    new = st.just(1)
    if not decode_only:
        # One token, a few, about one tile of queries, and anything.
        near_tile = st.integers(sizes.tile - 2, sizes.tile + 2)
        new = st.one_of(new, st.integers(1, 4), near_tile, st.integers(1, sizes.tokens * 3 // 4))
    lengths: Lengths = []
    left = sizes.tokens
    for _ in range(draw(st.integers(1, sizes.seqs))):
        count = min(draw(new), left)
        if count == 0:
            break
        old = draw(st.one_of(st.integers(0, 20), st.integers(0, sizes.context - count)))
        lengths.append((count, old))
        left -= count
    return lengths


def _random_lengths(seed: int, sizes: Sizes, decode_only: bool) -> Lengths:
    """A full step, and different ones for different seeds: for where examples are few."""
    rng = np.random.default_rng(seed)
    count = sizes.seqs - 1
    new = np.ones(count, int)
    if not decode_only:
        new[rng.permutation(count)[: -(-count // 2)]] = 2
        prefills = new > 1
        cuts = rng.multinomial(sizes.tokens - 2 * prefills.sum() - count, [1 / count] * count)
        new = np.where(prefills, 2 + cuts, 1)
    old = [int(rng.integers(0, sizes.context - n + 1)) for n in new]
    return list(zip(new.tolist(), old, strict=True))


def lengths(sizes: Sizes, decode_only: bool = False) -> st.SearchStrategy[Lengths]:
    """Decodes, prefill chunks, or both, in any order."""
    decode_only = decode_only or sizes.decode_only
    if sizes.few_examples:
        return seeds().map(lambda seed: _random_lengths(seed, sizes, decode_only))
    return _drawn_lengths(sizes, decode_only)


def seeds(sizes: Sizes | None = None) -> st.SearchStrategy[int]:
    return st.integers(0, 2**32 - 1)


def cases(sizes: Sizes, decode_only: bool = False) -> st.SearchStrategy[Case]:
    """Steps of any of the sizes' geometries."""
    return st.builds(
        make_case,
        lengths(sizes, decode_only),
        seeds(),
        st.sampled_from(sizes.geometries),
        st.just(sizes),
        st.just(decode_only),
    )


def decodes(sizes: Sizes) -> st.SearchStrategy[Case]:
    """Steps that are known to be decodes only."""
    return cases(sizes, decode_only=True)


# What a call may ask for. True stands for one number a head.
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 5},
    "wide-window": {"window": True, "soft_cap": 1.5},
    "soft-cap": {"soft_cap": 1.5},
    "alibi": {"alibi_slopes": True},
    "sinks": {"sinks": True},
    "lse": {"return_lse": True},
    "everything": {
        "window": True,
        "soft_cap": 3.0,
        "alibi_slopes": True,
        "sinks": True,
        "return_lse": True,
    },
}


def fill(options: dict[str, Any], case: Case) -> dict[str, Any]:
    """The options with numbers that fit the case: a window of a part of it, numbers for heads."""
    head = np.arange(1, case.q.shape[1] + 1)
    numbers = {
        "window": case.room * 7 // 16,
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
