"""The suite of block managers catches each wrong target and passes right ones."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from paged_conformance.adapters import jax_engine_blocks, oracle_blocks
from paged_conformance.block_manager import CAPABILITIES, PROPERTIES
from paged_conformance.block_manager.driver import run
from paged_conformance.block_manager.histories import histories
from paged_conformance.block_manager.right import RIGHT, Plain, maker
from paged_conformance.block_manager.wrong import WRONG
from paged_conformance.properties import (
    Broken,
    Capabilities,
    Elsewhere,
    Lacking,
    Property,
    Refused,
)

NAMED = {prop.name: prop for prop in PROPERTIES}
SMALL = {"block_size": 2, "num_blocks": 4, "num_swap_blocks": 0}
PROMPT = [-1, 0, 0, 0, [0, 1, 1], None, None]


def first_failure(make: Any, prop: Property, examples: int) -> Exception | None:
    """What the first of so many examples raises that fails, the same in each run."""
    has = Capabilities(frozenset(make.capabilities), getattr(make, "sizes", {}))
    failures: list[Exception] = []
    limits = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def example(example: Any) -> None:
        try:
            prop.check(make, example)
        except Lacking:
            return
        except Exception as error:
            failures.append(error)
            raise

    try:
        limits(given(prop.examples(has))(example))()
    except Exception:
        return failures[0]
    return None


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_manager_is_caught(kind: Any) -> None:
    make = maker(kind)
    assert set(NAMED[kind.caught_by].needs) <= set(make.capabilities)
    assert first_failure(make, NAMED[kind.caught_by], 300) is not None


def everything(make: Any, examples: int) -> Exception | None:
    """All demands at once, as if they were one property's."""
    prop = Property("all", "", histories, lambda made, example: run(made, example, "*"))
    return first_failure(make, prop, examples)


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_a_right_manager_passes(kind: type[Plain]) -> None:
    assert everything(maker(kind), 60) is None


@pytest.mark.parametrize("adapter", [oracle_blocks, jax_engine_blocks], ids=["oracle", "engine"])
@pytest.mark.parametrize("name", ["make", "make_without_cache"])
def test_ours_pass(adapter: Any, name: str) -> None:
    assert everything(getattr(adapter, name), 60) is None


def test_each_property_has_a_wrong_manager() -> None:
    assert {kind.caught_by for kind in WRONG} == set(NAMED)  # type: ignore[attr-defined]


def test_words_are_known() -> None:
    made = [maker(kind) for kind in (*RIGHT, *WRONG)]
    used = {word for make in made for word in make.capabilities}
    assert used <= set(CAPABILITIES)
    assert {word for prop in PROPERTIES for word in prop.needs} <= set(CAPABILITIES)


def test_what_a_target_raises_is_a_failure_and_a_refusal_is_none() -> None:
    class Raises(Plain):
        def open(self, **_: Any) -> Any:
            raise KeyError("no such block")

    class Refuses(Plain):
        def open(self, **_: Any) -> Any:
            raise Refused("never")

    example = {**SMALL, "ops": [["open", PROMPT, 100]]}
    with pytest.raises(KeyError, match="no such block"):
        NAMED["counts"].check(maker(Raises), example)
    with pytest.raises(Broken, match="3 tokens were refused, with blocks of 2 and 4 free"):
        NAMED["what-fits-is-taken"].check(maker(Refuses), example)
    with pytest.raises(Elsewhere, match="what-fits-is-taken: 3 tokens were refused"):
        NAMED["counts"].check(maker(Refuses), example)


def test_another_properties_failure_ends_an_example() -> None:
    class Leaks(Plain):
        def free(self, *, seq: int) -> None:
            self.tables.pop(seq, None)

    example = {**SMALL, "ops": [["open", PROMPT, 100], ["step", []], ["free", 0]]}
    with pytest.raises(Broken, match="2 blocks are free and 0 in use, of 4"):
        NAMED["counts"].check(maker(Leaks), example)
    with pytest.raises(Elsewhere, match="counts: 2 blocks are free"):
        NAMED["contents"].check(maker(Leaks), example)


@pytest.mark.parametrize("make", [maker(Plain), jax_engine_blocks.make], ids=["plain", "engine"])
def test_what_an_aborted_sequence_wrote_may_be_found_or_not(make: Any) -> None:
    """Its block was the first with its text; another's is not found when that one is taken."""
    ops = [
        ["open", [-1, 0, 0, 0, [0, 1], None, None], 1],
        ["step", []],
        ["open", [0, 0, 9, 0, [1], None, None], 100],
        ["step", [0]],
        ["turn", 1, 0],
        ["open", [-1, 0, 0, 0, [1, 1], None, None], 100],
        ["match", [0, 0, 9, 0, [0], None, None]],
    ]
    sizes = {"block_size": 1, "num_blocks": 4, "num_swap_blocks": 0}
    run(make, {**sizes, "ops": ops}, "*")


@pytest.mark.parametrize("adapter", [oracle_blocks, jax_engine_blocks], ids=["oracle", "engine"])
def test_a_sequence_may_take_the_block_that_is_found_for_its_own_text(adapter: Any) -> None:
    """Tables are append-only: its own block with that text is unknown to a cache of one a text."""
    again = [["open", [-1, 0, 0, 0, [0, 0], None, None], 1], ["step", []], ["turn", 1, 0]]
    ops = [*again, ["free", 0], *again, ["free", 0], *again, ["free", 0]]
    last = [["open", [3, 1, 1, 0, [0, 0, 0, 1, 0], None, None], 1]]
    sizes = {"block_size": 1, "num_blocks": 5, "num_swap_blocks": 0}
    run(adapter.make, {**sizes, "ops": [*ops, *last]}, "*")


def test_operations_that_do_not_apply_are_passed_over() -> None:
    ops = [["extend", 0, 1, [0]], ["fork", 3], ["swap", 1], ["free", 2], ["guess", 0, 1, [1], 1]]
    for prop in PROPERTIES:
        prop.check(maker(Plain), {**SMALL, "ops": [*ops, ["misuse", 0, 0], ["unschedule", 1]]})


def test_examples_are_made_smaller_to_few_operations() -> None:
    make = maker(WRONG[0])
    has = Capabilities(frozenset(make.capabilities), make.sizes)
    prop = NAMED[WRONG[0].caught_by]  # type: ignore[attr-defined]
    seen: list[Any] = []

    def example(example: Any) -> None:
        try:
            prop.check(make, example)
        except Elsewhere:
            return
        except Broken:
            seen.append(example)
            raise

    limits = settings(max_examples=200, derandomize=True, database=None, deadline=None)
    with pytest.raises(Broken):
        limits(given(histories(has))(example))()
    assert len(seen[-1]["ops"]) <= 4
