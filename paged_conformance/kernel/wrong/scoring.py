"""Kernels that get scores, masks or their sums wrong."""

import math

import numpy as np

from paged_conformance.kernel.arrays import dtype_of
from paged_conformance.kernel.cases import Case
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.wrong.plain import Options, Plain


class NoScale(Plain):
    """Scores are not scaled."""

    caught_by = "oracle-plain"

    def scale(self, case: Case) -> float:
        return 1.0


class DefaultScale(Plain):
    """Scores are scaled by 1 / sqrt(D) whatever `scale` is."""

    caught_by = "oracle-plain"

    def scale(self, case: Case) -> float:
        return 1 / math.sqrt(case.q.shape[2])


class WindowOneShort(Plain):
    """A window ends one token too soon."""

    caught_by = "oracle-window"

    def visible(self, query: np.ndarray, key: np.ndarray, window: int | None) -> np.ndarray:
        return super().visible(query, key, window and max(window - 1, 1))


class WindowOneLong(Plain):
    """A window is one token too long."""

    caught_by = "unread-slots-5"

    def first(self, position: int, window: int | None) -> int:
        return super().first(position, window and window + 1)

    def visible(self, query: np.ndarray, key: np.ndarray, window: int | None) -> np.ndarray:
        return super().visible(query, key, window and window + 1)


class WindowWithoutItself(Plain):
    """With a window no token but the first sees itself."""

    caught_by = "oracle-window"

    def visible(self, query: np.ndarray, key: np.ndarray, window: int | None) -> np.ndarray:
        seen = super().visible(query, key, window)
        return seen if window in (None, 1) else seen & ((key < query) | (query == 0))


class SeesItsSuccessor(Plain):
    """The first token of a chunk sees the second."""

    caught_by = "oracle-plain"

    def visible(self, query: np.ndarray, key: np.ndarray, window: int | None) -> np.ndarray:
        seen = super().visible(query, key, window)
        seen[0] |= key == query[0] + 1
        return seen


class DecodeWithoutTheFirst(Plain):
    """A decode leaves the first token out."""

    caught_by = "decode-of-a-prefill-all"

    def visible(self, query: np.ndarray, key: np.ndarray, window: int | None) -> np.ndarray:
        seen = super().visible(query, key, window)
        return seen & ((key > 0) | (query == 0)) if len(query) == 1 else seen


class CapAfterMask(Plain):
    """Masked scores are capped too, so that masked tokens get some weight."""

    caught_by = "oracle-soft-cap"

    def adjust(
        self, scores: np.ndarray, visible: np.ndarray, distance: np.ndarray, head: int, o: Options
    ) -> np.ndarray:
        scores = np.where(visible, scores, -1e30)
        return super().adjust(scores, visible | ("soft_cap" in o), distance, head, o)


class CapByExponential(Plain):
    """tanh is 1 - 2 / (exp(2x) + 1) in float32, which is inexact for large caps."""

    caught_by = "option-of-nothing-soft-cap"

    def adjust(
        self, scores: np.ndarray, visible: np.ndarray, distance: np.ndarray, head: int, o: Options
    ) -> np.ndarray:
        if "soft_cap" in o:
            power = np.exp(np.float32(2 / o["soft_cap"]) * scores.astype(np.float32))
            scores = o["soft_cap"] * (1 - 2 / (power + np.float32(1))).astype(np.float64)
        rest = {name: value for name, value in o.items() if name != "soft_cap"}
        return super().adjust(scores, visible, distance, head, rest)


class SlopeOfAnotherHead(Plain):
    """Query head h uses the slope of head h // 2."""

    caught_by = "oracle-alibi"

    def adjust(
        self, scores: np.ndarray, visible: np.ndarray, distance: np.ndarray, head: int, o: Options
    ) -> np.ndarray:
        return super().adjust(scores, visible, distance, head // 2, o)


class NoSlopeIsTheUsual(Plain):
    """A slope of zero is replaced by the usual one."""

    caught_by = "option-of-nothing-alibi"

    def adjust(
        self, scores: np.ndarray, visible: np.ndarray, distance: np.ndarray, head: int, o: Options
    ) -> np.ndarray:
        if "alibi_slopes" in o:
            o = o | {"alibi_slopes": np.where(o["alibi_slopes"] == 0, 0.25, o["alibi_slopes"])}
        return super().adjust(scores, visible, distance, head, o)


class SinkInEachSplit(Plain):
    """Contexts are split after 16 tokens, and both parts count the sink."""

    caught_by = "oracle-sinks"

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        twice = np.log(2.0) if scores.shape[1] > 16 else 0.0
        return super().sums(scores, sink + twice, values)


class SinkAsShift(Plain):
    """Scores are taken relative to the sink, which may be minus infinity."""

    caught_by = "option-of-nothing-sinks"

    def __call__(self, case: Case, options: Options) -> Result:
        sinks = options.get("sinks")
        out, lse = super().__call__(case, options)
        return out if sinks is None else out + (sinks - sinks)[:, None], lse


class LseInBase2(Plain):
    """The log-sum-exp is to base 2."""

    caught_by = "oracle-lse"

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        out, lse = super().sums(scores, sink, values)
        return out, lse / np.log(2.0)


class LseIsTheLargest(Plain):
    """The log-sum-exp is the largest score."""

    caught_by = "two-parts"

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return super().sums(scores, sink, values)[0], scores.max(1)


class SumsInBfloat16(Plain):
    """Weighted values are added up in bfloat16, eight tokens at a time."""

    caught_by = "dtype-bfloat16"

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        top = np.maximum(scores.max(1), sink)
        weights = np.exp(scores - top[:, None])
        total = weights.sum(1) + np.exp(sink - top)
        out = np.zeros((len(scores), values.shape[1]), dtype_of("bfloat16"))
        for start in range(0, len(values), 8):
            part = slice(start, start + 8)
            out = (out + weights[:, part] @ values[part]).astype(out.dtype)
        return out.astype(np.float64) / total[:, None], top + np.log(total)
