"""Rules of routers: examples by hand, and what holds of every choice."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reference.routing import (
    PrefixAndLoad,
    PrefixIndex,
    Router,
    Rule,
    least_loaded,
    longest_prefix,
    round_robin,
)

RULES: dict[str, Rule] = {
    "round robin": round_robin,
    "least loaded": least_loaded,
    "prefix": longest_prefix,
    "both": PrefixAndLoad(),
    "both, strict": PrefixAndLoad(min_share=0.0, max_excess=0, max_ratio=1.0),
}
some_loads = st.dictionaries(st.integers(0, 12), st.integers(0, 200), min_size=1)
some_matches = st.dictionaries(st.integers(0, 12), st.integers(1, 100))
some_rule = st.sampled_from(list(RULES.values()))


def test_round_robin_takes_turns() -> None:
    router = Router(round_robin)
    assert [router.choose({0: 9, 1: 0, 2: 0}, {1: 50}, 50) for _ in range(4)] == [0, 1, 2, 0]
    assert [router.choose({0: 9, 2: 0}, {}, 50) for _ in range(3)] == [2, 0, 2]


def test_least_loaded_takes_turns_among_equals() -> None:
    router = Router(least_loaded)
    assert [router.choose({0: 1, 1: 2, 2: 1}, {}, 50) for _ in range(3)] == [0, 2, 0]


def test_the_longest_match_wins_whatever_the_load() -> None:
    loads = {0: 0, 1: 500, 2: 3, 3: 2}
    assert longest_prefix(loads, {1: 32, 2: 16}, 100) == [1]
    assert longest_prefix(loads, {2: 16, 3: 16}, 100) == [3]
    assert longest_prefix(loads, {}, 100) == [0]
    assert longest_prefix({0: 4, 2: 4}, {1: 32, 2: 16}, 100) == [2], "1 is not live"


@pytest.mark.parametrize(
    ("loads", "matches", "chosen"),
    [
        ({0: 64, 1: 0}, {0: 90}, [0]),  # no more than 64 above the least
        ({0: 65, 1: 0}, {0: 90}, [1]),
        ({0: 195, 1: 130}, {0: 90}, [0]),  # no more than 1.5 times the least
        ({0: 196, 1: 130}, {0: 90}, [1]),
        ({0: 0, 1: 0, 2: 900}, {0: 90}, [0]),  # another is overloaded, not this one
        ({0: 1, 1: 0}, {0: 30}, [0]),  # 30 % of the prompt
        ({0: 1, 1: 0}, {0: 29}, [1]),
    ],
)
def test_both_follows_the_prefix_up_to_its_limits(
    loads: dict[int, int], matches: dict[int, int], chosen: list[int]
) -> None:
    assert PrefixAndLoad()(loads, matches, 100) == chosen


def test_without_a_live_replica_there_is_no_choice() -> None:
    with pytest.raises(ValueError, match="no live replica"):
        Router(round_robin).choose({}, {0: 16}, 20)


@given(st.lists(st.tuples(some_loads, some_matches), min_size=1, max_size=8), some_rule)
def test_each_request_goes_to_one_live_replica(
    asked: list[tuple[dict[int, int], dict[int, int]]], rule: Rule
) -> None:
    router = Router(rule)
    for loads, matches in asked:
        assert router.choose(loads, matches, 100) in loads


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(0, 100))
def test_round_robin_is_even(live: set[int], requests: int) -> None:
    router, loads = Router(round_robin), dict.fromkeys(live, 0)
    sent = Counter(router.choose(loads, {}, 10) for _ in range(requests))
    counts = [sent[one] for one in live]
    assert max(counts) - min(counts) <= 1


@given(some_loads, some_matches)
def test_least_loaded_picks_no_replica_with_more_load_than_another(
    loads: dict[int, int], matches: dict[int, int]
) -> None:
    assert loads[Router(least_loaded).choose(loads, matches, 100)] == min(loads.values())


@given(some_loads, some_matches)
@example({0: 0}, {1: 50})
def test_prefix_picks_a_longest_match(loads: dict[int, int], matches: dict[int, int]) -> None:
    chosen = Router(longest_prefix).choose(loads, matches, 100)
    assert matches.get(chosen, 0) == max(matches.get(one, 0) for one in loads)


@given(some_loads, st.integers(0, 5), st.integers(0, 100))
def test_without_matches_prefixes_change_nothing(
    loads: dict[int, int], turns: int, max_excess: int
) -> None:
    """Both rules that look at prefixes are the least load then, turn by turn."""
    rules = (least_loaded, longest_prefix, PrefixAndLoad(0.3, max_excess))
    routers = [Router(rule) for rule in rules]
    for _ in range(turns):
        assert len({router.choose(loads, {}, 100) for router in routers}) == 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=20),
    st.integers(0, 6),
)
def test_the_index_finds_what_was_stored_without_gaps(
    changes: list[tuple[int, int]], length: int
) -> None:
    """A change stores a block, or removes it if it is there."""
    index, held = PrefixIndex(), set()
    for replica, block in changes:
        if (replica, block) in held:
            index.remove(replica, block)
        else:
            index.store(replica, block)
        held ^= {(replica, block)}
    wanted = {}
    for replica in range(4):
        depth = 0
        while depth < length and (replica, depth) in held:
            depth += 1
        if depth > 0:
            wanted[replica] = depth
    assert index.matches(range(length)) == wanted
