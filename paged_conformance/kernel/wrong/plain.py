"""A right paged attention in plain NumPy, in steps that a wrong one takes otherwise.

It is quick on small steps and the same bits whatever lies around what it reads: sums are float64.
"""

from typing import Any, ClassVar

import numpy as np

from paged_conformance.kernel.cases import Case
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.sizes import Sizes

Options = dict[str, Any]

SMALL = Sizes(
    tokens=24,
    seqs=4,
    context=40,
    long_context=1100,
    tile=8,
    step=16,
    geometries=((4, 2, 2, 8), (8, 1, 3, 16)),
    examples=50,
    shrink=False,
)


class Plain:
    """Right. A wrong kernel is a subclass; its docstring is the mistake.

    Attributes:
        caught_by: The property that must notice a wrong one.
    """

    caught_by: ClassVar[str]

    sizes = SMALL

    @property
    def name(self) -> str:
        return type(self).__name__

    def missing(self, case: Case, options: Options) -> str | None:
        return None

    def __call__(self, case: Case, options: Options) -> Result:
        out = np.zeros(case.q.shape)
        lse = np.full(case.q.shape[:2], -np.inf)
        for seq in range(len(case.context_lens)):
            rows = case.queries_of(seq)
            if rows.start < rows.stop:
                out[rows], lse[rows] = self.sequence(case, options, seq)
        out = out.astype(case.q.dtype).astype(np.float32)
        return out, lse.astype(np.float32) if options.get("return_lse") else None

    def sequence(self, case: Case, options: Options, seq: int) -> tuple[np.ndarray, np.ndarray]:
        """The result [Q, H, D] of a sequence's queries, and its log-sum-exp [Q, H]."""
        queries, length = case.queries_of(seq), int(case.context_lens[seq])
        count, heads, kv_heads = queries.stop - queries.start, *_heads(case)
        query = length - count + np.arange(count)[:, None]
        key = np.arange(self.first(int(query[0, 0]), options.get("window")), length)
        keys, values = (self.read(case, seq, key, which) for which in (0, 1))
        visible = self.visible(query, key, options.get("window"))
        out, lse = np.zeros((count, heads, case.q.shape[2])), np.zeros((count, heads))
        for head in range(heads):
            kv_head = self.kv_head(head, heads, kv_heads)
            q = case.q[queries, head].astype(np.float64)
            scores = q @ keys[:, kv_head].T * self.scale(case)
            scores = self.adjust(scores, visible, key - query, head, options)
            sink = options["sinks"][head] if "sinks" in options else -np.inf
            out[:, head], lse[:, head] = self.sums(scores, float(sink), values[:, kv_head])
        return out, lse

    def first(self, position: int, window: int | None) -> int:
        """The first position that a query at a position sees."""
        return 0 if window is None else max(0, position - window + 1)

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        """[n, K, D]: keys (0) or values (1) at the positions `key` of a sequence."""
        block = case.block_tables[seq, key // case.block_size]
        layer = self.layer(case)
        which = min(which, case.kv_cache.shape[1] - 1)  # a cache of keys alone has both in one
        stored = case.kv_cache[layer, which][block, :, key % case.block_size].astype(np.float64)
        if case.kv_scales is None:
            return np.asarray(stored)
        return np.asarray(stored * case.kv_scales[layer, self.scales_of(which)][:, None])

    def layer(self, case: Case) -> int:
        return case.layer

    def scales_of(self, which: int) -> int:
        """Whose scales the stored keys (0) or values (1) are multiplied by."""
        return which

    def scale(self, case: Case) -> float:
        return case.scale

    def kv_head(self, head: int, heads: int, kv_heads: int) -> int:
        """Which KV head a query head reads."""
        return head // (heads // kv_heads)

    def visible(self, query: np.ndarray, key: np.ndarray, window: int | None) -> np.ndarray:
        """[Q, n]: which positions each query sees."""
        seen = key <= query
        return seen if window is None else seen & (key > query - window)

    def adjust(
        self, scores: np.ndarray, visible: np.ndarray, distance: np.ndarray, head: int, o: Options
    ) -> np.ndarray:
        """Soft cap, bias and mask."""
        if "soft_cap" in o:
            scores = o["soft_cap"] * np.tanh(scores / o["soft_cap"])
        if "alibi_slopes" in o:
            scores = scores + o["alibi_slopes"][head] * distance
        return np.where(visible, scores, -np.inf)

    def sums(
        self, scores: np.ndarray, sink: float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weighted means of the values, and the logs of the sums of weights."""
        top = np.maximum(scores.max(1), sink)
        weights = np.exp(scores - top[:, None])
        total = weights.sum(1) + np.exp(sink - top)
        return weights @ values / total[:, None], top + np.log(total)


def _heads(case: Case) -> tuple[int, int]:
    return case.q.shape[1], case.kv_cache.shape[3]
