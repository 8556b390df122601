"""How the prefill's warpgroups wait for each other, in every order in which they may run.

The ring's own code runs in Python, once for each warpgroup, and leaves what it waits for, arrives
at, multiplies and clears. These lists then run side by side in a drawn order. The interpreter runs
in one order only, and does not see what a matrix product reads.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pallas_kernels.call import Options
from pallas_kernels.mosaic import ring
from pallas_kernels.mosaic.pages import Context, Paging
from pallas_kernels.mosaic.prefill_plan import Prefill, Span

BLOCK = 64
COPYING = "copying"
Event = tuple[str, Any]
Happened = tuple[Any, Event]
Step = tuple[Prefill, Span]
Run = Callable[[Step, int], list[Happened]]
fixture_for_all = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


class Piece:
    """A barrier, or an array in shared memory, of the stage `slot`."""

    def __init__(self, name: str, slot: int | None = None):
        self.name, self.slot = name, slot
        self.at = self
        self.dtype = None

    def __getitem__(self, slot: int) -> "Piece":
        return Piece(self.name, slot)

    def transpose(self, _: Any) -> "Piece":
        return self

    def astype(self, _: Any) -> "Piece":
        return self

    @property
    def key(self) -> tuple[str, int | None]:
        return self.name, self.slot


class Running(SimpleNamespace):
    def _replace(self, **changes: Any) -> "Running":
        return self


@dataclass(frozen=True)
class Recorded(Context):
    """A context whose copies arrive, and whose edges are cleared, in the list of events."""

    events: list[Event] = field(default_factory=list)

    def find(self, block: Any) -> list[Any]:
        return [block]

    def copy(self, block: Any, found: list[Any], which: int, to: Any, done: Any) -> None:
        self.events.append(("copy", (to.name, block)))
        self.events.append(("arrive", done.key))

    def clear_outside(self, block: Any, values: Any) -> None:
        self.events.append(("clear", block))


def events_of(
    kernel: Prefill, span: Span, warpgroup: int | str, monkeypatch: pytest.MonkeyPatch
) -> list[Event]:
    """What one warpgroup does, by the code of `Ring`."""
    events: list[Event] = []

    def product(a: Any, keys: Piece, started: Callable[[], None] | None = None) -> Piece:
        events.append(("keys", keys.slot))
        if started is not None:
            started()
        return Piece("products")

    def add_product(total: Any, a: Any, values: Piece, staging: Any) -> None:
        events.append(("values", values.slot))

    def when(condition: bool) -> Callable[[Callable[[], None]], None]:
        return lambda run: run() if condition else None

    def fori_loop(begin: int, end: int, body: Callable[[int, Any], Any], carry: Any) -> Any:
        for i in range(begin, end):
            carry = body(i, carry)
        return carry

    fakes = {
        "plgpu": SimpleNamespace(
            rem=lambda a, b: a % b,
            product=product,
            add_product=add_product,
            barrier_arrive=lambda barrier: events.append(("arrive", barrier.key)),
            barrier_wait=lambda barrier: events.append(("wait", barrier.key)),
        ),
        "pl": SimpleNamespace(when=when),
        "lax": SimpleNamespace(fori_loop=fori_loop, optimization_barrier=lambda values: values),
        "softmax": SimpleNamespace(
            start=lambda *_: Running(out=None),
            add_scores=lambda running, raw, factor: (running, Piece("weights")),
        ),
    }
    names = kernel.scratch("bfloat16")
    scratch = {name: None if made is None else Piece(name) for name, made in names.items()}
    context = Recorded(kernel.paging, None, None, 0, 0, 0, span.low, span.high, events)
    with monkeypatch.context() as patch:
        for name, fake in fakes.items():
            patch.setattr(ring, name, fake)
        patch.setattr(ring.Ring, "_scores", lambda *_: (None, 1.0))
        made = ring.Ring(kernel, context, span, scratch)
        if warpgroup == COPYING:
            made.produce()
        else:
            made.consume(ring.Rows(None, None, None, None, warpgroup))
    return events


def run(lists: dict[Any, list[Event]], arrivals: dict[str, int], seed: int) -> list[Happened]:
    """Runs the lists side by side; returns (warpgroup, event) in the order in which they happened.

    A barrier completes a phase with its number of arrivals. A warpgroup's n-th wait is for the n-th
    phase, of which the hardware knows only whether n is odd.
    """
    order, at = random.Random(seed), Counter[Any]()
    arrived: Counter[Any] = Counter()
    waits: dict[Any, Counter[Any]] = defaultdict(Counter)
    happened: list[Happened] = []

    def may_go(warpgroup: Any) -> bool:
        what, which = lists[warpgroup][at[warpgroup]]
        if what != "wait":
            return True
        ahead = arrived[which] // arrivals[which[0]] - waits[warpgroup][which]
        assert ahead in (0, 1), f"{warpgroup} sees {which} as it is {ahead} phases later"
        return ahead == 1

    while left := [w for w, events in lists.items() if at[w] < len(events)]:
        able = [warpgroup for warpgroup in left if may_go(warpgroup)]
        assert able, f"all wait: {[(w, lists[w][at[w]]) for w in left]}"
        chosen = order.choice(able)
        what, which = lists[chosen][at[chosen]]
        if what == "arrive":
            arrived[which] += 1
        if what == "wait":
            waits[chosen][which] += 1
        at[chosen] += 1
        happened.append((chosen, (what, which)))
    incomplete = {which for which, n in arrived.items() if n % arrivals[which[0]]}
    assert not incomplete, f"incomplete: {incomplete}"
    return happened


@st.composite
def steps(draw: st.DrawFn, counts: tuple[int, ...] = (1, 2, 3)) -> Step:
    """Kernels with such counts of warpgroups, and spans of up to six stages, cut or not."""
    warpgroups = draw(st.sampled_from(counts))
    ping_pong = warpgroups == 2 and (counts == (2,) or draw(st.booleans()))
    window = draw(st.sampled_from([None, 100]))
    paging = Paging(1, 1, BLOCK, 64, BLOCK)
    stages = draw(st.integers(2 if ping_pong else 1, 4))
    static = (stages, warpgroups, ping_pong, 1, 64 * warpgroups, False, False, False)
    first = 0 if window is None else draw(st.integers(0, 2))
    last = first + draw(st.integers(1, 6))
    inner = first if window is None else draw(st.integers(first, last))
    outer = draw(st.integers(inner, last))
    low = first * BLOCK + (0 if window is None else draw(st.integers(0, 1)))
    high = last * BLOCK - draw(st.integers(0, 1))
    return Prefill(paging, Options(1.0, window), *static), Span(
        low, high, first, inner, outer, last
    )


@pytest.fixture
def run_step(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs all warpgroups of a step in a drawn order."""

    def run_it(step: Step, seed: int) -> list[Happened]:
        kernel, span = step
        names = [*range(kernel.warpgroups), COPYING]
        made = kernel.scratch("bfloat16")
        arrivals = {name: b.num_arrivals for name, b in made.items() if hasattr(b, "num_arrivals")}
        lists = {name: events_of(kernel, span, name, monkeypatch) for name in names}
        return run(lists, arrivals, seed)

    return run_it


@fixture_for_all
@given(step=steps(), seed=st.integers(0, 1000))
def test_all_end_and_values_are_cleared_before_any_warpgroup_reads_them(
    step: Step, seed: int, run_step: Run
) -> None:
    (kernel, span), happened = step, run_step(step, seed)
    reads: list[list[int]] = [[] for _ in range(kernel.warpgroups)]
    copied, cleared = {}, {}
    for i, (by, (what, which)) in enumerate(happened):
        if what == "values":
            assert which == len(reads[by]) % kernel.stages
            reads[by].append(i)
        if what == "copy" and which[0] == "values":
            copied[which[1]] = i
        if what == "clear":
            cleared[which] = i
    stages = range(span.first, span.last)
    cut = {span.first} if span.low % BLOCK else set()
    cut |= {span.last - 1} if span.high % BLOCK else set()
    # Only stages that are masked have slots outside of the span.
    assert set(cleared) == {i for i in cut if not span.inner <= i < span.outer} & set(stages)
    for read in reads:
        assert len(read) == len(stages)
        for n, i in enumerate(stages):
            assert copied[i] < cleared.get(i, copied[i] + 1) <= read[n]
            if i + kernel.stages in copied:
                assert read[n] < copied[i + kernel.stages]


@fixture_for_all
@given(step=steps((2,)), seed=st.integers(0, 1000))
def test_with_ping_pong_products_are_started_in_one_order(
    step: Step, seed: int, run_step: Run
) -> None:
    """The second warpgroup is half a stage behind: each computes weights beside the other's."""
    span, happened = step[1], run_step(step, seed)
    found = [(by, what) for by, (what, _) in happened if what in ("keys", "values")]
    wanted = [(0, "keys")]
    for _ in range(span.first, span.last):
        wanted += [(1, "keys"), (0, "values"), (0, "keys"), (1, "values")]
    wanted.pop(-2)  # after the last stage there are no keys
    assert found == wanted
