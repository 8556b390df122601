"""Anybody's paged attention, as the properties call it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np

from paged_conformance.kernel.cases import Case, Options
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.sizes import Sizes
from paged_conformance.kernel.words import FREEDOMS
from paged_conformance.properties import Broken, Lacking, demand


class Kernel(Protocol):
    """An adapter: write one for a paged attention with another signature than ours.

    It may have `capabilities` as well: those words of FREEDOMS that it takes; all of them if not.

    Attributes:
        name: stands in messages.
        sizes: how large the steps are that it is tried on.
    """

    name: str
    sizes: Sizes

    def missing(self, case: Case, options: Options) -> str | None:
        """What it lacks for such a call, in words, or None. It is not called then."""

    def __call__(self, case: Case, options: Options) -> Result:
        """Its result for a case, in float32, and the log-sum-exp if `return_lse` is asked for."""


def freedoms(kernel: Kernel) -> frozenset[str]:
    """The words of FREEDOMS that a kernel takes."""
    words: Collection[str] = getattr(kernel, "capabilities", FREEDOMS.keys())
    return frozenset(words) & FREEDOMS.keys()


def attend(kernel: Kernel, case: Case, options: Options | None = None) -> Result:
    """The kernel's result for a step, which is first brought into the form that it takes.

    Raises:
        Lacking: the kernel lacks what the call asks for.
        Broken: the result has another shape than the queries, or lacks its log-sum-exp.
    """
    options = options or {}
    takes = freedoms(kernel)
    given, rows = (case, None) if takes == FREEDOMS.keys() else _arranged(case, takes)
    if len(given.context_lens) == 0:
        return np.zeros(case.q.shape, np.float32), np.full(case.q.shape[:2], -np.inf, np.float32)
    lacking = kernel.missing(given, options)
    if lacking is not None:
        raise Lacking(f"{kernel.name} lacks {lacking}")
    out, lse = kernel(given, options)
    demand(out.shape == given.q.shape, f"the result is {out.shape} for queries {given.q.shape}")
    if options.get("return_lse"):
        if lse is None:
            raise Broken("return_lse was asked for, but there is no log-sum-exp")
        shape = given.q.shape[:2]
        demand(lse.shape == shape, f"the log-sum-exp is {lse.shape}, not {shape}")
    return (out, lse) if rows is None else _put_back((out, lse), case, rows)


@dataclass(frozen=True)
class _Order:
    """Where the tokens of an arranged step stand in the step that it was made from."""

    tokens: np.ndarray


def _arranged(case: Case, takes: frozenset[str]) -> tuple[Case, _Order]:
    """The step without what is not taken, and where its tokens come from."""
    count = np.arange(len(case.context_lens))
    if "any-order" not in takes:  # unused rows stay last
        count = np.argsort(
            np.select([case.query_lens == 1, case.query_lens > 1], [0, 1], 2), kind="stable"
        )
    trims = "padding" not in takes
    if "unused-rows" not in takes or (case.decode_only and trims):
        count = count[case.query_lens[count] > 0]
        trims |= case.decode_only  # there each row has its token
    tokens = [np.arange(rows.start, rows.stop) for rows in map(case.queries_of, count.tolist())]
    used = np.concatenate([*tokens, np.arange(0)]).astype(int)
    if not trims:
        used = np.concatenate([used, np.arange(case.num_tokens, len(case.q))])
    lens = case.query_lens[count]
    arranged = replace(
        case,
        q=case.q[used],
        block_tables=case.block_tables[count],
        context_lens=case.context_lens[count],
        query_start_loc=np.concatenate([[0], lens.cumsum()]).astype(np.int32),
    )
    return arranged, _Order(used)


def _put_back(got: Result, case: Case, order: _Order) -> Result:
    """The result of an arranged step in the order of the step; zeros for what was left out."""
    out = np.zeros(case.q.shape, np.float32)
    out[order.tokens] = got[0]
    if got[1] is None:
        return out, None
    lse = np.full(case.q.shape[:2], -np.inf, np.float32)
    lse[order.tokens] = got[1]
    return out, lse


def kernel_of(make: Any) -> Kernel:
    """The kernel that a property's first argument stands for: an adapter, or what makes one."""
    return cast(Kernel, getattr(make, "kernel", make))
