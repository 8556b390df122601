"""`benchmarks.replicas`: traffic is what it claims, figures count what they say."""

from math import inf

import numpy as np
import pytest

from benchmarks.replicas.goodput import FIRST_TOKEN_S, PER_TOKEN_S, figures, is_good, mean_loads
from benchmarks.replicas.traffic import (
    MAX_MODEL_LEN,
    MEAN_ANSWER_S,
    MEAN_PAUSE_S,
    MEAN_TURNS,
    SYSTEM_LEN,
    TENANTS,
    conversations,
)
from benchmarks.workload import read_lengths
from reference.simulated_replicas import Answer


def answer(replica: int, arrival: float, first: float, latency: float, output: int = 11) -> Answer:
    return Answer(0, 0, replica, arrival, 100, output, 40, first, latency)


def test_good_answers_meet_both_limits() -> None:
    assert is_good(answer(0, 0, FIRST_TOKEN_S, FIRST_TOKEN_S + 10 * PER_TOKEN_S - 1e-9))
    assert not is_good(answer(0, 0, FIRST_TOKEN_S, FIRST_TOKEN_S + 10 * PER_TOKEN_S + 1e-6))
    assert not is_good(answer(0, 0, FIRST_TOKEN_S + 1e-6, FIRST_TOKEN_S + PER_TOKEN_S))
    assert is_good(answer(0, 0, 0.1, 0.1, output=1))


def test_figures_count_what_ends_in_the_time() -> None:
    answers = [
        answer(0, 0.0, 0.1, 0.3),  # ends before
        answer(0, 0.5, 0.1, 1.0),  # ends too slowly: 0.09 s a token
        answer(1, 2.0, 0.1, 0.3),
        answer(1, 3.0, 0.1, 0.35),
        answer(1, 4.8, 0.1, inf),  # begins and does not end
        answer(0, 4.9, inf, inf),
    ]
    found = figures(answers, replicas=2, start=1.0, end=5.0)
    assert found["answers_per_s"] == pytest.approx(3 / 4 / 2)
    assert found["goodput_per_s"] == pytest.approx(2 / 4 / 2)
    assert found["good_percent"] == pytest.approx(66.67)
    assert found["cached_percent"] == 40
    # In the hands of 0 for 0.5 s and 0.1 s, of 1 for 0.3 s, 0.35 s and 0.2 s.
    assert mean_loads(answers, 2, 1.0, 5.0) == pytest.approx([0.15, 0.2125])
    assert found["busiest_over_mean"] == pytest.approx(0.2125 / 0.18125, rel=1e-3)


def test_conversations_have_the_lengths_and_the_rate() -> None:
    seconds, rate = 400.0, 20.0
    found = conversations(rate, seconds)
    assert found == conversations(rate, seconds) != conversations(rate, seconds, seed=1)
    old = [one for one in found if one.history_len > 0]
    new = [one for one in found if one.history_len == 0]
    assert len(new) == pytest.approx(rate / MEAN_TURNS * seconds, rel=0.1)
    under_way = rate * (1 - 1 / MEAN_TURNS) * (MEAN_PAUSE_S + MEAN_ANSWER_S)
    assert len(old) == pytest.approx(under_way, rel=0.2)
    assert max(one.start for one in old) < MEAN_PAUSE_S + MEAN_ANSWER_S
    turns = [turn for one in new for turn in one.turns]
    assert len(turns) / len(new) == pytest.approx(MEAN_TURNS, rel=0.1)
    lengths = np.array(read_lengths()).mean(axis=0)
    assert np.mean([one.prompt_len for one in turns]) == pytest.approx(lengths[0], rel=0.15)
    assert np.mean([one.output_len for one in turns]) == pytest.approx(lengths[1], rel=0.15)
    assert np.mean([one.pause for one in turns]) == pytest.approx(MEAN_PAUSE_S, rel=0.1)


def test_conversations_fit_and_tenants_follow_zipf() -> None:
    found = conversations(50.0, 200.0)
    for one in found:
        said = sum(turn.prompt_len + turn.output_len for turn in one.turns)
        assert one.system_len + one.history_len + said <= MAX_MODEL_LEN
        assert SYSTEM_LEN[0] <= one.system_len <= SYSTEM_LEN[1]
    systems = {one.system: one.system_len for one in found}
    assert all(systems[one.system] == one.system_len for one in found)
    counts = np.bincount([one.system for one in found], minlength=TENANTS)
    assert counts[0] / counts[3] == pytest.approx(4, rel=0.3)
