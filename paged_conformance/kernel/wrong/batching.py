"""Kernels whose sequences, blocks or padding get into each other's way."""

from dataclasses import replace

import numpy as np

from paged_conformance.kernel.cases import Case
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.wrong.plain import Options, Plain


class BlocksInThePoolsOrder(Plain):
    """Blocks are added up in the order in which they lie in the pool, in float32."""

    caught_by = "moved-blocks"

    def sequence(self, case: Case, options: Options, seq: int) -> tuple[np.ndarray, np.ndarray]:
        self.order = np.argsort(case.block_tables[seq].repeat(case.block_size), kind="stable")
        return super().sequence(case, options, seq)

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        top = np.maximum(scores.max(1), sink)
        weights = np.exp(scores - top[:, None]).astype(np.float32)
        total = weights.sum(1) + np.exp(sink - top)
        out = np.zeros((len(scores), values.shape[1]), np.float32)
        for token in self.order[self.order < len(values)]:
            out += weights[:, token, None] * values[token].astype(np.float32)
        return out / total[:, None], top + np.log(total)


class OneTopForAll(Plain):
    """Scores are taken relative to one number for the whole step, in float32."""

    caught_by = "company"

    def __call__(self, case: Case, options: Options) -> Result:
        self.top = np.float32(np.abs(case.q[: case.num_tokens].astype(np.float32)).max())
        return super().__call__(case, options)

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        shifted = scores.astype(np.float32) - self.top
        out, lse = super().sums(shifted, float(sink - self.top), values)
        return out, lse + self.top


class EightAtATime(Plain):
    """In a step of four or more tokens a NaN in one query reaches all results."""

    caught_by = "company"

    def __call__(self, case: Case, options: Options) -> Result:
        out, lse = super().__call__(case, options)
        four = case.q[: case.num_tokens].astype(np.float32)
        return (out + 0 * four.sum(), lse) if len(four) >= 4 else (out, lse)


class ByOneHotProduct(Plain):
    """Rows are selected by a product with zeros and ones, which spreads a NaN to all rows."""

    caught_by = "broken-sequence"

    def __call__(self, case: Case, options: Options) -> Result:
        out, lse = super().__call__(case, options)
        return out + 0 * out.sum(0), lse


class PaddingTakesPart(Plain):
    """Padding queries are multiplied by zero and added to the results."""

    caught_by = "padding-queries"

    def __call__(self, case: Case, options: Options) -> Result:
        out, lse = super().__call__(case, options)
        return out + 0 * case.q[case.num_tokens :].astype(np.float32).sum(0), lse


class PaddingIsNotZero(Plain):
    """Padding tokens get the last token's result."""

    caught_by = "padding-gives-zeros"

    def __call__(self, case: Case, options: Options) -> Result:
        out, lse = super().__call__(case, options)
        out[case.num_tokens :] = out[case.num_tokens - 1]
        return out, lse


class PaddingHasWeight(Plain):
    """The log-sum-exp of padding is 0."""

    caught_by = "padding-weighs-nothing"

    def __call__(self, case: Case, options: Options) -> Result:
        out, lse = super().__call__(case, options)
        return out, lse if lse is None else np.where(np.isneginf(lse), np.float32(0), lse)


class LaterStartsAreShifted(Plain):
    """From the third sequence on, tokens begin one position too late."""

    caught_by = "oracle-plain"

    def __call__(self, case: Case, options: Options) -> Result:
        starts = case.query_start_loc.copy()
        starts[2:-1] = np.minimum(starts[2:-1] + 1, starts[-1])
        lens = np.maximum(case.context_lens, np.diff(starts))
        return super().__call__(replace(case, query_start_loc=starts, context_lens=lens), options)


class UnusedSequencesWrite(Plain):
    """A sequence without tokens clears the result of the token before it."""

    caught_by = "oracle-plain"

    def __call__(self, case: Case, options: Options) -> Result:
        out, lse = super().__call__(case, options)
        out[case.query_start_loc[1:][case.query_lens == 0] - 1] = 0
        return out, lse


class TablesInPlace(Plain):
    """Table entries past a context are set to 0 in the caller's array."""

    caught_by = "arguments-stay"

    def __call__(self, case: Case, options: Options) -> Result:
        for table, length in zip(case.block_tables, case.context_lens, strict=True):
            table[-(-length // case.block_size) :] = 0
        return super().__call__(case, options)
