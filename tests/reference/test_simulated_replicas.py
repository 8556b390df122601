"""Many replicas: as `simulate` if there is one, and every request is answered under every rule."""

from math import isfinite

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.cost_model import StepCost
from reference.prefix_cache import PrefixCache
from reference.routing import PrefixIndex, Rule, longest_prefix, round_robin
from reference.simulated_replicas import (
    Answer,
    ChatRequest,
    Conversation,
    ReplicaServer,
    SimulatedPrefixCache,
    Turn,
    keys_of,
    simulate_replicas,
)
from reference.simulator import simulate
from tests.reference.test_routing import RULES

COST = StepCost(0.03, 0.0002, 0.0001, 0.00001, 0.001)


def chats(seed: int, count: int, turns: int = 3, gap: float = 0.3) -> list[Conversation]:
    """Short conversations of two tenants, which come faster than one replica can serve them."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(rng.exponential(gap, count))
    found = []
    for start in starts:
        said = [
            Turn(int(rng.integers(1, 12)), int(rng.integers(1, 20)), float(rng.exponential(1.0)))
            for _ in range(rng.integers(1, turns + 1))
        ]
        system = int(rng.integers(2))
        found.append(
            Conversation(float(start), system, 12 + 8 * system, tuple(said), int(rng.integers(9)))
        )
    return found


def server(slots: int = 400, **options: int) -> ReplicaServer:
    limits = {
        "block_size": 4,
        "max_model_len": 160,
        "max_num_seqs": 6,
        "max_num_batched_tokens": 64,
    }
    return ReplicaServer(slots, **(limits | options))  # type: ignore[arg-type]


class WithoutSkipping(ReplicaServer):
    """Makes each step by itself."""

    def num_alike(self) -> int:
        return 0


class WithRealCache(ReplicaServer):
    """Has the oracle's own prefix cache, which compares tokens, beside the simulated one."""

    def publish_to(self, index: PrefixIndex, replica: int) -> None:
        told = SimulatedPrefixCache(self.blocks.block_size, replica, index)
        real = self.blocks.prefix_cache

        class Both(PrefixCache):
            def lookup(self, *args: object, **options: object) -> list[int]:
                found = real.lookup(*args, **options)  # type: ignore[arg-type]
                assert told.lookup(*args, **options) == found  # type: ignore[arg-type]
                return found

            def offer(self, *args: object, **options: object) -> bool:
                was_new = real.offer(*args, **options)  # type: ignore[arg-type]
                assert told.offer(*args, **options) == was_new  # type: ignore[arg-type]
                return was_new

            def is_own(self, block: int, index: int, prompt_len: int) -> bool:
                own = real.is_own(block, index, prompt_len)
                assert told.is_own(block, index, prompt_len) == own
                return own

            def evict(self, block: int) -> None:
                real.evict(block)
                told.evict(block)

        self.blocks.prefix_cache = Both(self.blocks.block_size)


def times(answers: list[Answer]) -> list[tuple[float, ...]]:
    return [(one.arrival, one.first_token_s, one.latency_s, one.num_cached) for one in answers]


@pytest.mark.parametrize("slots", [176, 400, 4000])
@pytest.mark.parametrize("seed", range(3))
def test_one_replica_is_the_simulator(seed: int, slots: int) -> None:
    """The same latencies as those of `simulate`, with queues, preemptions and stretches cut."""
    singles = [one for one in chats(seed, 40, turns=1, gap=0.5)]
    answers = simulate_replicas(singles, [server(slots)], round_robin, COST)
    trace = [
        ChatRequest(
            one.arrival,
            one.prompt_len,
            one.output_len,
            prefix_len=singles[one.conversation].system_len,
            conversation=one.conversation,
            system=singles[one.conversation].system,
        )
        for one in answers
    ]
    report = simulate(trace, server(slots), COST)
    assert [one.latency_s for one in answers] == pytest.approx(report.latencies, rel=1e-9)


def run(kind: type[ReplicaServer], slots: int, rule: Rule) -> list[Answer]:
    servers = [
        kind(slots, block_size=4, max_model_len=160, max_num_seqs=6, max_num_batched_tokens=64)
        for _ in range(3)
    ]
    return simulate_replicas(chats(5, 25), servers, rule, COST)


def check_same(some: list[Answer], others: list[Answer]) -> None:
    assert [one.replica for one in some] == [one.replica for one in others]
    for mine, its in zip(times(some), times(others), strict=True):
        assert mine == pytest.approx(its, rel=1e-9)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("slots", [200, 2000])
def test_the_simulated_cache_is_the_real_one(rule: Rule, slots: int) -> None:
    check_same(run(ReplicaServer, slots, rule), run(WithRealCache, slots, rule))


@pytest.mark.parametrize(
    ("name", "slots"),
    # With few slots the router's knowledge of what is evicted is older by a stretch.
    [(name, 2000) for name in RULES] + [("round robin", 200), ("least loaded", 200)],
)
def test_stretches_change_nothing(name: str, slots: int) -> None:
    check_same(run(ReplicaServer, slots, RULES[name]), run(WithoutSkipping, slots, RULES[name]))


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(1, 4),
    st.sampled_from(list(RULES.values())),
    st.sampled_from([180, 400]),
)
def test_every_rule_finishes_every_request(
    seed: int, replicas: int, rule: Rule, slots: int
) -> None:
    talks = chats(seed, 12)
    servers = [server(slots) for _ in range(replicas)]
    answers = simulate_replicas(talks, servers, rule, COST)
    assert sorted((one.conversation, one.turn) for one in answers) == [
        (number, turn) for number, talk in enumerate(talks) for turn in range(len(talk.turns))
    ]
    for one in answers:
        assert 0 <= one.replica < replicas
        assert 0 < one.first_token_s <= one.latency_s and isfinite(one.latency_s)
        assert 0 <= one.num_cached < one.prompt_len
    for one in servers:
        assert one.blocks.num_free_gpu_blocks == one.blocks.num_gpu_blocks


def test_a_turn_comes_after_the_answer_before_it_and_finds_it() -> None:
    talk = Conversation(1.0, 0, 8, (Turn(4, 6), Turn(3, 1, pause=2.0)))
    first, second = simulate_replicas([talk], [server(), server()], longest_prefix, COST)
    assert second.arrival == pytest.approx(first.arrival + first.latency_s + 2.0)
    assert (first.prompt_len, first.num_cached) == (12, 0)
    assert (second.prompt_len, second.num_cached) == (
        21,
        16,
    )  # the last token drawn is not computed
    assert second.per_token_s == 0.0
    assert first.per_token_s == pytest.approx(0.03 + 0.0003 + 0.00001 * 15, rel=0.01)


def test_a_request_at_the_very_start_of_a_stretch_ends_it() -> None:
    """The second turn comes with no pause when the other conversation has only to decode."""
    talks = [
        Conversation(0.0, 0, 8, (Turn(4, 2), Turn(2, 2))),
        Conversation(0.0, 0, 8, (Turn(4, 30),)),
    ]
    answers = simulate_replicas(talks, [server()], round_robin, COST)
    step = COST.per_step
    assert answers[2].first_token_s == pytest.approx(step, rel=0.1)


def test_the_time_ends_when_it_is_told_to() -> None:
    talk = Conversation(0.0, 0, 8, (Turn(4, 30), Turn(4, 30)))
    (answer,) = simulate_replicas([talk], [server()], round_robin, COST, until=0.5)
    assert isfinite(answer.first_token_s) and not isfinite(answer.latency_s)


def test_the_simulated_cache_by_hand() -> None:
    """Blocks of 4 tokens, of which one prompt had 4, another 6, and one is mixed."""
    index = PrefixIndex()
    cache = SimulatedPrefixCache(4, 1, index)
    assert cache.offer(5, [7] * 4) and not cache.offer(6, [7] * 4)
    assert cache.offer(9, [7] * 8, prompt_len=6) and cache.offer(3, [7] * 12, is_mixed=True)
    assert cache.lookup([7] * 13) == [5, 9, 3] and cache.lookup([7] * 8) == [5]
    assert cache.lookup([7] * 13, prompt_len=6) == [5, 9]
    assert cache.lookup([7] * 13, prompt_len=8) == [5], "the second one's end was generated"
    assert cache.lookup([8] * 13) == []
    assert index.matches(keys_of([7] * 13, 4)) == {1: 3} and index.matches([]) == {}
    cache.evict(9)
    cache.evict(9)
    assert cache.lookup([7] * 13) == [5] and len(cache) == 2
    assert index.matches(keys_of([7] * 13, 4)) == {1: 1}
    cache.clear()
    assert len(cache) == 0 and index.matches(keys_of([7] * 13, 4)) == {}
