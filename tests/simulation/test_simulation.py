"""A handful of fresh seeds in each run, thousands under `thorough`.

`SIMULATION_SEED` is the first seed, where it is set.
"""

import os
from random import Random

import pytest

from tests.simulation.run import Totals, Worker, run_seeds
from tests.support.counting import exercised
from tests.support.sometimes import saw

# Seeds of a run, and the most until everything that must happen sometimes has happened. The few of
# `make test` need not see all of it.
NUM_SEEDS = {
    "few": (10, 10),
    "dev": (40, 800),
    "ci": (200, 1000),
    "rounds": (1000, 1000),
    "thorough": (5000, 5000),
    "mutation": (150, 400),
}
NUM_TINY = {"few": 1, "dev": 3, "ci": 12, "rounds": 30, "thorough": 300, "mutation": 0}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
PROFILE = "mutation" if PROFILE == "generated" else PROFILE  # for bugs made by rule: the same


def first_seed() -> int:
    """Another one in each run, but the same for all planted bugs."""
    if PROFILE == "mutation":
        return 0
    return int(os.environ.get("SIMULATION_SEED", Random().randrange(2**32)))


def note(totals: Totals, worker: Worker) -> None:
    """For the record of `python -m tests.thorough`."""
    exercised(totals.num_seeds)
    saw(f"simulated seeds, {worker}", totals.num_seeds)
    saw(f"simulated steps, {worker}", totals.num_steps)
    saw(f"simulated hours, {worker}", round(totals.seconds / 3600))


def test_nothing_goes_wrong_in_fresh_simulations() -> None:
    """I1 to I5, I9, I13, I16 to I22, I26, I51; tokens, text and ends against the pure function."""
    first, (enough, most) = first_seed(), NUM_SEEDS[PROFILE]
    print(f"python -m tests.simulation --seeds {first}:{first + most}")
    totals = run_seeds(range(first, first + most), enough=enough)
    note(totals, "stub")
    if most > enough:
        assert not totals.missing, f"never happened in {totals} from {first} on"


@pytest.mark.skipif(not NUM_TINY[PROFILE], reason="the stub tells as much, and sooner")
def test_nothing_goes_wrong_with_the_real_worker() -> None:
    """I13 for keys and values, on the device and in the host's memory; I39 for the tokens."""
    first, count = first_seed(), NUM_TINY[PROFILE]
    print(f"python -m tests.simulation --worker tiny --seeds {first}:{first + count}")
    totals = run_seeds(range(first, first + count), "tiny")
    note(totals, "tiny")
    assert totals.num_steps > 0


@pytest.mark.parametrize("seed", [327, 1000658, 1003222])
def test_what_simulations_have_found_stays_mended(seed: int) -> None:
    """327: the id of a request comes back before anybody has read how the first one ended.

    1000658: an interruption while costs are measured, which takes the cache along.

    1003222: a step fails in which the time of all requests that are waited for was up.
    """
    run_seeds([seed], enough=1)
