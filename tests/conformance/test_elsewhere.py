"""An example that another property ends counts neither as held nor as the last that there is."""

from pathlib import Path
from typing import Any

import pytest

from paged_conformance import block_manager, prefix_cache, replay, scheduler
from paged_conformance.block_manager import right as managers
from paged_conformance.command import main
from paged_conformance.prefix_cache import right as caches
from paged_conformance.properties import Capabilities, Elsewhere, Property
from paged_conformance.runs import Outcome, Status, judge
from paged_conformance.scheduler.plain import Plain
from paged_conformance.scheduler.wrong import OneSequenceTooMany
from paged_conformance.search import Found, search
from paged_conformance.targets import Target
from tests.conformance.test_engine import tried

HERE = "tests.conformance.test_elsewhere"


class LosesBlocks(managers.Plain):
    """Wrong: what a sequence held is never free again."""

    def free(self, *, seq: int) -> None:
        self.tables.pop(seq, None)


class EvictsNothing(caches.Radix):
    """Wrong: it gives nothing back."""

    def evict(self, *, num_tokens: int) -> list[int]:
        return []


manager, cache = managers.maker(LosesBlocks), caches.maker(EvictsNothing)


def looked(suite: Any, make: Any, name: str) -> Found:
    """What the first examples of one property alone show."""
    return tried(next(prop for prop in suite.PROPERTIES if prop.name == name), make, 40)


@pytest.mark.parametrize(
    ("suite", "make", "name"),
    [
        (block_manager, manager, "contents"),
        (prefix_cache, cache, "matches-are-longest"),
        (scheduler, OneSequenceTooMany, "ends"),
        (scheduler, OneSequenceTooMany, "repeats"),
    ],
)
def test_what_another_property_ends_is_not_counted(suite: Any, make: Any, name: str) -> None:
    found = looked(suite, make, name)
    assert not found.failed
    assert 0 < found.num_lacking <= found.num_examples
    assert found.lacks.startswith("another property is broken: ")


@pytest.mark.parametrize(
    ("suite", "make", "name"),
    [
        (block_manager, managers.maker(managers.Plain), "contents"),
        (prefix_cache, caches.maker(caches.Radix), "matches-are-longest"),
        (scheduler, Plain, "ends"),
    ],
)
def test_of_a_right_target_all_are(suite: Any, make: Any, name: str) -> None:
    assert looked(suite, make, name).num_lacking == 0


def _ended(make: Any, example: Any) -> None:
    raise Elsewhere(f"counts: it was {example}")


def test_a_property_of_which_none_counts_has_not_held_and_is_searched_on() -> None:
    prop = Property("held", "It holds.", block_manager.PROPERTIES[0].examples, _ended)
    outcome = Outcome(prop)
    for _ in range(2):
        before = outcome.found.num_examples
        search(prop, managers.Plain, Capabilities(), seconds=0.1, seed=1, found=outcome.found)
        assert outcome.found.num_examples > before
    judge(outcome, {}, lambda _: None)
    assert outcome.status is Status.SKIPPED
    assert outcome.why.startswith("no example counts: another property is broken: counts: it was")


def test_the_command_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    example = {"block_size": 2, "num_blocks": 4, "num_swap_blocks": 0}
    ops = [["open", [-1, 0, 0, 0, [0, 1, 1], None, None], 100], ["step", []], ["free", 0]]
    prop = next(one for one in block_manager.PROPERTIES if one.name == "contents")
    outcome = Outcome(prop, found=Found(failed=True, example={**example, "ops": ops}))
    script = replay.write(outcome, "block-manager", Target(f"{HERE}:manager", None, {}), tmp_path)
    assert main(["--replay", str(script)]) == 3
    assert "The example does not count: another property is broken: counts: 2 blocks" in (
        capsys.readouterr().out
    )
