"""The suite `engine` finds each planted mistake, and calls no right engine wrong."""

import contextlib
from collections import Counter
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from paged_conformance.adapters import oracle_engine
from paged_conformance.adapters.vllm_shaped import VllmShaped
from paged_conformance.engine import CAPABILITIES, PROPERTIES
from paged_conformance.engine.right import RIGHT, ForbidsAnIgnoredEnd
from paged_conformance.engine.toy import Sequence, Toy, ToyFactory
from paged_conformance.engine.wrong import CAUGHT_BY
from paged_conformance.properties import Capabilities, Property
from paged_conformance.search import Found, search

NAMED = {prop.name: prop for prop in PROPERTIES}
EXAMPLES = 400


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small examples are nice to read, and take most of the time."""
    monkeypatch.setattr("paged_conformance.search.SHRINK_SECONDS", (0.0, 0.0))


class Over(BaseException):
    """Enough examples."""


def tried(
    prop: Property, make: Any, num_examples: int, *, seconds: float = 600.0, seed: int = 0
) -> Found:
    """The first so many examples of one seed, or fewer if one fails."""
    has = Capabilities(frozenset(make.capabilities), getattr(make, "sizes", {}))
    left = num_examples

    def tick() -> None:
        nonlocal left
        left -= 1
        if left < 0 and not found.failed:
            raise Over

    found = Found()
    with contextlib.suppress(Over):
        search(prop, make, has, seconds=seconds, seed=seed, found=found, tick=tick)
    return found


@pytest.mark.parametrize("kind", CAUGHT_BY, ids=lambda kind: kind.__name__)
def test_a_wrong_engine_is_found(kind: type[Toy]) -> None:
    found = tried(NAMED[CAUGHT_BY[kind]], ToyFactory(kind), EXAMPLES)

    assert found.failed, f"{found.num_examples} examples did not show it: {kind.__doc__}"


class Watched(Toy):
    """The right toy; `seen` counts what only a history that fills its pool brings about."""

    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self, **sizes: Any) -> None:
        self.evicted: set[Any] = set()
        super().__init__(**sizes)

    def forget(self, block: int) -> None:
        self.evicted.add(self.keys.get(block))
        super().forget(block)

    def find(self, seq: Sequence) -> None:
        super().find(seq)
        more = (len(seq.table) + 1) * self.block_size < len(seq.tokens)
        self.seen["came again"] += more and self.block_key(seq, len(seq.table)) in self.evicted

    def preempt(self, seq: Sequence) -> None:
        self.seen["preempted"] += 1
        super().preempt(seq)

    def abort(self, *, ids: list[str]) -> list[Any]:
        waits = any(seq.name in ids for seq in self.waiting)
        self.seen["waited while others ran"] += waits and bool(self.running)
        return super().abort(ids=ids)


@pytest.mark.parametrize(
    ("name", "rare"),
    [
        ("warm-as-cold", ("came again",)),
        ("crowded-pool", ("came again", "preempted")),
        ("storms-of-aborts", ("came again", "waited while others ran")),
    ],
)
def test_histories_get_to_what_is_rare(name: str, rare: tuple[str, ...]) -> None:
    """Few examples of several seeds: those of one seed are alike."""
    Watched.seen.clear()
    for seed in range(8):
        tried(NAMED[name], ToyFactory(Watched), 25, seed=seed)
    assert all(Watched.seen[word] >= 5 for word in rare), Watched.seen


@pytest.mark.parametrize("kind", [Toy, *RIGHT], ids=lambda kind: kind.__name__)
def test_a_right_engine_passes(kind: type[Toy]) -> None:
    make = ToyFactory(kind)
    for prop in PROPERTIES:
        if set(prop.needs) <= make.capabilities:
            found = tried(prop, make, 6)
            assert not found.failed, f"{prop.name}: {found.says} {found.example}"


def test_the_oracles_engine_passes() -> None:
    make = oracle_engine.make
    for prop in PROPERTIES:
        if set(prop.needs) <= make.capabilities:
            found = tried(prop, make, 3)
            assert not found.failed, f"{prop.name}: {found.says} {found.example}"


def test_an_oracle_with_other_weights_is_found() -> None:
    class Other(oracle_engine.OracleEngine):
        """It serves a model without its last layer's MLP, and names the whole one."""

        def __init__(self, **sizes: Any) -> None:
            super().__init__(**sizes)
            whole = self.engine.model
            weights = dict(whole.weights)  # type: ignore[attr-defined]
            weights["model.layers.1.mlp.down_proj.weight"] = (
                weights["model.layers.1.mlp.down_proj.weight"] * 0
            )
            self.engine.model = type(whole)(whole.config, weights)  # type: ignore[attr-defined,call-arg]
            self.engine.slots = {0: self.engine.model}

    make = type(
        "Make", (type(oracle_engine.make),), {"__call__": lambda _, **sizes: Other(**sizes)}
    )()

    assert tried(NAMED["the-oracles-tokens"], make, 20).failed


def test_every_property_has_a_wrong_engine() -> None:
    assert NAMED.keys() - set(CAUGHT_BY.values()) == {"the-oracles-tokens"}


def test_needs_are_capabilities() -> None:
    assert {word for prop in PROPERTIES for word in prop.needs} <= CAPABILITIES.keys()


def test_samples_that_outputs_repeat_are_told_once() -> None:
    """Cumulative outputs have all samples of a request, those that have ended too."""

    def output(*samples: tuple[list[int], str | None]) -> Any:
        outputs = [
            SimpleNamespace(
                index=index, token_ids=tokens, text="", logprobs=None, finish_reason=reason
            )
            for index, (tokens, reason) in enumerate(samples)
        ]
        done = all(reason for _, reason in samples)
        return SimpleNamespace(request_id="r", outputs=outputs, finished=done)

    steps = [output(([1], "stop"), ([2], None)), output(([1], "stop"), ([2, 3], "length"))]
    late = output(([1, 9], "stop"), ([2, 3], None))
    names: list[str] = []
    engine = SimpleNamespace(step=lambda: [steps.pop(0)], abort_request=names.append)
    target = VllmShaped(engine, None, ())

    def told() -> list[Any]:
        return [(one["index"], one["token_ids"], one["finish_reason"]) for one in target.step()]

    assert told() == [(0, [1], "stop"), (1, [2], None)]
    assert told() == [(1, [2, 3], "length")]
    steps += [output(([1], "stop"), ([2], None)), late]
    assert told() == [(0, [1], "stop"), (1, [2], None)], "the name is used again"
    assert (0, [1, 9], "stop") in told(), "an ended sample that changes is seen"
    target.abort(ids=["r"])
    steps.append(output(([1, 9], "stop"), ([2], None)))
    assert len(told()) == 2


def test_an_ignored_end_may_be_forbidden_before_min_tokens() -> None:
    found = tried(NAMED["ends-at-the-first-stop"], ToyFactory(ForbidsAnIgnoredEnd), EXAMPLES // 2)

    assert not found.failed, found.says
