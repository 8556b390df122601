"""Right kernels of odd kinds: each relies on one line of the contract, and on no more.

All of them must pass. Those that take less than everything say so by their capabilities.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from paged_conformance.kernel.cases import Case, Options
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.words import FREEDOMS
from paged_conformance.kernel.wrong.plain import SMALL, Plain
from reference.attention import merge_partials


def all_but(*words: str) -> frozenset[str]:
    """All freedoms but these."""
    return frozenset(FREEDOMS.keys() - set(words))


class SplitContexts(Plain):
    """Each context is attended to in parts of seven tokens, the last one first, then merged."""

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        starts = range(0, scores.shape[1], 7)
        parts = [self._part(scores[:, i : i + 7], values[i : i + 7]) for i in reversed(starts)]
        nothing = np.zeros((len(scores), values.shape[1])), np.full(len(scores), sink)
        outs, lses = zip(*parts, nothing, strict=True)
        out, lse = merge_partials(np.stack(outs), np.stack(lses))
        return out, lse

    def _part(self, scores: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        top = scores.max(1)
        shift = np.where(np.isneginf(top), 0, top)
        weights = np.exp(scores - shift[:, None])
        total = weights.sum(1)
        out = weights @ values / np.where(total == 0, 1, total)[:, None]
        with np.errstate(divide="ignore"):
            return out, shift + np.log(total)


class Backwards(Plain):
    """Sums are taken in float32 from the last token to the first."""

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        scores, values = scores.astype(np.float32)[:, ::-1], values.astype(np.float32)[::-1]
        top = np.maximum(scores.max(1), np.float32(sink))
        weights = np.exp(scores - top[:, None])
        total = np.exp(np.float32(sink) - top)
        out = np.zeros((len(scores), values.shape[1]), np.float32)
        for token in range(len(values)):
            total = total + weights[:, token]
            out += weights[:, token, None] * values[token]
        return out / total[:, None], top + np.log(total)


class RoundedWeights(Plain):
    """Weights are rounded to the dtype of the queries before they meet the values."""

    def __call__(self, case: Case, options: Options) -> Result:
        self.dtype = case.q.dtype
        return super().__call__(case, options)

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        top = np.maximum(scores.max(1), sink)
        weights = np.exp(scores - top[:, None])
        total = weights.sum(1) + np.exp(sink - top)
        rounded = weights.astype(np.float32).astype(self.dtype).astype(np.float64)
        return rounded @ values / total[:, None], top + np.log(total)


class Slow(Plain):
    """Each call takes 20 ms more, so it asks for few examples."""

    sizes = replace(SMALL, examples=3, shrink=True)

    def __call__(self, case: Case, options: Options) -> Result:
        time.sleep(0.02)
        return super().__call__(case, options)


class ByPlaceInThePool(Plain):
    """Finds the position of each block of a row, which stands there once."""

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        used = -(-int(case.context_lens[seq]) // case.block_size)
        place = {int(block): i for i, block in enumerate(case.block_tables[seq, :used])}
        assert len(place) == used
        return super().read(case, seq, key, which)


class CommonBeginnings(Plain):
    """Reads a block that a row begins with from the first row that begins with the same blocks."""

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        tables, lens = case.block_tables, -(-case.context_lens // case.block_size)
        for other in range(seq):
            mine, others = tables[seq, : lens[seq]], tables[other, : lens[other]]
            both = min(len(mine), len(others))
            common = int(np.argmin([*(mine[:both] == others[:both]), False]))
            rest = {*mine[common:].tolist()} & {*others.tolist()}
            assert not rest, f"rows {other} and {seq} share {rest} past their beginning"
        return super().read(case, seq, key, which)


class OwnBlocks(Plain):
    """Takes each block out of the pool once."""

    capabilities: frozenset[str] = all_but("shared-blocks")

    def __call__(self, case: Case, options: Options) -> Result:
        rows = [case.blocks_of(seq) for seq in range(len(case.context_lens))]
        assert len(set().union(*rows)) == sum(map(len, rows))
        return super().__call__(case, options)


class WholeTable(Plain):
    """Follows all entries of a table."""

    capabilities = all_but("unused-entries")

    def __call__(self, case: Case, options: Options) -> Result:
        _ = case.kv_cache[case.layer, 0][case.block_tables]
        assert case.block_tables.min() >= 0
        return super().__call__(case, options)


class TimesZero(Plain):
    """Reads all slots of all blocks, and weighs by zero what must not be seen."""

    capabilities = all_but("unread-nan")

    def __call__(self, case: Case, options: Options) -> Result:
        out, lse = super().__call__(case, options)
        zero = 0 * (case.kv_cache.astype(np.float32).sum() + case.q.astype(np.float32).sum())
        return out + zero, lse


class DecodesFirst(Plain):
    """Takes decodes as one array, and then what has several queries."""

    capabilities = all_but("any-order")

    def __call__(self, case: Case, options: Options) -> Result:
        used = case.query_lens[case.query_lens > 0]
        decodes = int((used == 1).sum())
        assert (used[:decodes] == 1).all() and (used[decodes:] > 1).all()
        return super().__call__(case, options)


class ExactTokens(Plain):
    """Has no padding of queries, and gives none a result."""

    capabilities = all_but("padding")

    def __call__(self, case: Case, options: Options) -> Result:
        assert len(case.q) == case.num_tokens
        return super().__call__(case, options)


class RowsInUse(Plain):
    """Each row has a query."""

    capabilities = all_but("unused-rows")

    def __call__(self, case: Case, options: Options) -> Result:
        assert len(case.context_lens) > 0 and (case.query_lens > 0).all()
        return super().__call__(case, options)


class TakesNothing(OwnBlocks, WholeTable, DecodesFirst, ExactTokens, RowsInUse):
    """Takes steps without any freedom, and checks that they are."""

    capabilities: frozenset[str] = frozenset()


class Decodes(Plain):
    """Takes one query of each row, without options, in bfloat16."""

    sizes = replace(SMALL, decode_only=True, dtype="bfloat16")

    def missing(self, case: Case, options: Options) -> str | None:
        if not case.decode_only:
            return "prompts"
        if case.q.dtype != "bfloat16" or case.kv_cache.dtype != "bfloat16":
            return "other dtypes than bfloat16"
        return f"the option {next(iter(options))}" if options else None


class Strict(Plain):
    """Checks every line of what the contract promises never to occur."""

    def __call__(self, case: Case, options: Options) -> Result:
        self.promises(case)
        self.promises_of_options(case, options)
        return super().__call__(case, options)

    def promises(self, case: Case) -> None:
        starts, lens, new = case.query_start_loc, case.context_lens, case.query_lens
        layers, kv, pool, kv_heads, block_size, dim = case.kv_cache.shape
        tables, rows, tokens = case.block_tables, len(lens), len(case.q)
        for array in (starts, lens, tables):
            assert array.dtype == np.int32
        assert starts.shape == (rows + 1,) and tables.shape[0] == rows and min(rows, tokens) >= 1
        assert case.q.shape == (tokens, case.q.shape[1], dim) and case.q.shape[1] % kv_heads == 0
        assert starts[0] == 0 and (new >= 0).all() and starts[-1] <= tokens
        assert (lens >= new).all() and (lens <= tables.shape[1] * block_size).all()
        assert ((new == 0) == (lens == 0)).all()
        assert (np.diff((new == 0).astype(int)) >= 0).all()  # unused rows are last
        for table, length in zip(tables, lens, strict=True):
            used = table[: -(-length // block_size)]
            assert len(set(used.tolist())) == len(used)
            assert ((used >= 0) & (used < pool)).all()
        if case.decode_only:
            assert tokens == rows and (new <= 1).all()
        assert 0 <= case.layer < layers and kv in (1, 2)
        if case.kv_scales is None:
            assert case.kv_cache.dtype == case.q.dtype
        else:
            assert case.kv_cache.dtype.itemsize == 1
            assert case.kv_scales.shape == (layers, kv, kv_heads)
            assert case.kv_scales.dtype == np.float32 and (case.kv_scales > 0).all()

    def promises_of_options(self, case: Case, options: Options) -> None:
        heads = (case.q.shape[1],)
        known: dict[str, Any] = {
            "window": lambda w: isinstance(w, int) and w >= 1,
            "soft_cap": lambda c: isinstance(c, float) and c > 0,
            "alibi_slopes": lambda a: a.shape == heads and a.dtype == np.float32 and (a >= 0).all(),
            "sinks": lambda s: s.shape == heads and s.dtype == np.float32 and (s < np.inf).all(),
            "return_lse": lambda lse: lse is True,
        }
        assert all(known[name](value) for name, value in options.items())


RIGHT: tuple[type[Plain], ...] = (
    Plain,
    SplitContexts,
    Backwards,
    RoundedWeights,
    Slow,
    ByPlaceInThePool,
    CommonBeginnings,
    OwnBlocks,
    WholeTable,
    TimesZero,
    DecodesFirst,
    ExactTokens,
    RowsInUse,
    TakesNothing,
    Decodes,
    Strict,
)
