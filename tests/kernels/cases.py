"""Ragged batches over a paged cache, in few array shapes.

A compiled function is kept for each shape, so shapes come from short lists, and what is drawn
(lengths, block tables, content, the layer) varies within them. How large the shapes are is the
kernel's choice: what is interpreted gets small ones.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
QUANTIZED = {"int8": np.int8, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}


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
        shrink: look for the smallest case that fails.
    """

    tokens: int = 192
    seqs: int = 12
    context: int = 320
    long_context: int | None = None
    tile: int = 48
    step: int = 128
    # Two of everything that matters: B below and above a query, K, heads a group, D.
    geometries: tuple[tuple[int, int, int, int], ...] = ((4, 2, 2, 8), (16, 1, 3, 16))
    layers: int = 3
    dtype: str = "float32"
    examples: int = 10_000
    decode_only: bool = False
    shrink: bool = True

    @property
    def few_examples(self) -> bool:
        """Calls take so long that each example must be a telling one."""
        return self.examples < 10

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        return f"Sizes({', '.join(f'{n}={v!r}' for n, v in values.items() if v != defaults[n])})"

    def long(self) -> "Sizes":
        """Steps of the longest contexts, which are small in all else."""
        longest = self.long_context
        if longest is None:
            longest = self.context if self.context < USUAL_CONTEXT else max(self.context, 1300)
        tokens, seqs = min(self.tokens, self.tile + 2), min(self.seqs, 3)
        return replace(self, tokens=tokens, seqs=seqs, context=longest)


USUAL_CONTEXT = Sizes.context


@dataclass(frozen=True, repr=False)
class Case:
    """One step: the arguments of `paged_attention`, as NumPy arrays.

    Attributes:
        decode_only: promised: no sequence has several query tokens.
        made_of: Python that makes it again.
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
        return self.made_of

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What Hypothesis prints, which would show all fields of a dataclass."""
        printer.text(self.made_of)

    @property
    def block_size(self) -> int:
        return int(self.kv_cache.shape[4])

    @property
    def scale(self) -> float:
        """The scale is not quite what models take, which a kernel might take unasked."""
        return 1.3 * float(self.q.shape[2]) ** -0.5

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
        q, kv_cache = self.q.astype(FLOATS[dtype]), self.kv_cache.astype(FLOATS[dtype])
        return replace(self, q=q, kv_cache=kv_cache, made_of=f"{self.made_of}.as_dtype({dtype!r})")

    def values_in_keys(self) -> "Case":
        """A cache [L, 1, N, K, B, D]: the values are the keys."""
        return replace(
            self, kv_cache=self.kv_cache[:, :1], made_of=f"{self.made_of}.values_in_keys()"
        )

    def quantized(self, dtype: str) -> "Case":
        """The cache in 8 bits, with another scale for each layer, key or value, and head."""
        layers, kv, _, heads, _, _ = self.kv_cache.shape
        scales = np.linspace(0.01, 0.03, layers * kv * heads).reshape(layers, kv, heads)
        scales = scales.astype(np.float32)
        exact = self.kv_cache.astype(np.float32) / scales[:, :, None, :, None, None]
        largest = 127 if dtype == "int8" else 448
        clipped = np.clip(np.rint(exact) if dtype == "int8" else exact, -largest, largest)
        made_of = f"{self.made_of}.quantized({dtype!r})"
        return replace(
            self, kv_cache=clipped.astype(QUANTIZED[dtype]), kv_scales=scales, made_of=made_of
        )


Lengths = list[tuple[int, int]]
# One sequence in so many begins with blocks of another one, as after a fork or a cache hit.
ONE_IN = 4


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
    blocks = sizes.seqs * width + 2
    lens = np.zeros((sizes.seqs, 2), np.int32)
    lens[: len(lengths)] = np.array(lengths, np.int32).reshape(-1, 2)
    shape = (sizes.layers, 2, blocks, kv_heads, block_size, dim)
    tokens = sizes.seqs if decode_only else sizes.tokens
    case = Case(
        q=rng.standard_normal((tokens, kv_heads * group, dim), np.float32),
        kv_cache=rng.standard_normal(shape, np.float32),
        block_tables=_tables(rng, -(-lens.sum(1) // block_size), width, blocks),
        context_lens=lens.sum(1, dtype=np.int32),
        query_start_loc=np.concatenate([[0], lens[:, 0].cumsum()]).astype(np.int32),
        layer=int(rng.integers(sizes.layers)),
        decode_only=decode_only,
        made_of=f"make_case({lengths}, {seed}, {geometry}, {sizes}, {decode_only})",
    )
    if sizes.dtype == "float32":
        return case
    return replace(case.as_dtype(sizes.dtype), made_of=case.made_of)


def _tables(rng: np.random.Generator, needed: np.ndarray, width: int, blocks: int) -> np.ndarray:
    """Block tables of sequences with the needed numbers of blocks, anywhere in the pool."""
    order = rng.permutation(blocks).astype(np.int32)
    # What stands past a context is left over from others.
    tables = rng.integers(0, blocks, (len(needed), width), np.int32)
    for i, count in enumerate(needed):
        tables[i, :count], order = order[:count], order[count:]
        other = int(rng.integers(0, i * ONE_IN + 1))
        if other < i:
            shared = int(rng.integers(0, min(count, needed[other]) + 1))
            tables[i, :shared] = tables[other, :shared]
    return tables


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
        "window": True, "soft_cap": 3.0, "alibi_slopes": True, "sinks": True, "return_lse": True,
    },
}  # fmt: skip


def fill(options: dict[str, Any], case: Case) -> dict[str, Any]:
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
