"""Small scopes, all of them: each interleaving of two or three requests on three to six blocks.

I1 to I6, I9 to I13, I15 to I20, I22, I23 in each state; controller and oracle the same in each.
"""

import os

import pytest

from tests.simulation.small_scopes import Explored, Scope, explore
from tests.support.counting import exercised

ONE, LONGER = ((0,), 1, 3), ((0, 1), 1, 2)  # prompt, n, max_tokens
TWO, UNEVEN = ((1,), 2, 2), ((0, 1, 0), 2, 2)  # of the last the samples share half a block
# Requests, blocks, block size, and how many states there are at least
DEV = [
    ((ONE, ONE, LONGER), 4, 1, 400),
    ((ONE, TWO), 5, 1, 45),
    ((UNEVEN, LONGER), 6, 2, 30),
    ((LONGER, ONE), 3, 2, 35),
]
THOROUGH = [
    ((ONE, TWO, LONGER), 5, 1, 280),
    ((UNEVEN, TWO, ((0,), 1, 4)), 6, 2, 200),
    ((((0,), 1, 5), ((1, 0), 1, 4), ((0, 0), 2, 3)), 7, 1, 3000),
    ((TWO, TWO, TWO), 6, 1, 150),
]
IS_THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") in ("rounds", "thorough")
SCOPES = DEV + THOROUGH if IS_THOROUGH else DEV
MODES = ["unified", "sosp", "sosp-mixed"] if IS_THOROUGH else ["unified", "sosp"]


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.slow
def test_every_interleaving_of_a_few_requests(scheduling, mode) -> None:
    """At least 530 states each; preemptions and copies are among them."""
    total = Explored()
    for requests, num_blocks, block_size, least in SCOPES:
        found = explore(Scope(scheduling, mode, requests, num_blocks, block_size))
        assert found.num_states >= least, (requests, found)
        total.num_states += found.num_states
        total.num_preemptions += found.num_preemptions
        total.num_copies += found.num_copies
    print(scheduling, mode, total)
    exercised(total.num_states)
    assert total.num_states >= 530 and total.num_preemptions and total.num_copies


def test_a_wrong_scheduler_is_found_with_the_actions_that_show_it(monkeypatch) -> None:
    """The search reports its path."""
    monkeypatch.setattr(
        "jax_engine.core.scheduler_state.SchedulerState._give_back", lambda *_: None
    )
    with pytest.raises(AssertionError, match="add:0 "):
        explore(Scope("unified", "swap", (ONE, ONE), 4))
