"""The rule by which equal prompts meet on one replica."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.ray.prefix_routing import (
    BLOCK_BYTES,
    MAX_BLOCKS,
    PrefixRouting,
    prompt_blocks,
)

REPLICAS = ["a", "b", "c", "d"]
THRESHOLD = 4
LOADS = st.dictionaries(st.sampled_from(REPLICAS), st.integers(0, 12), min_size=1)
LETTERS = st.text("xy", max_size=4)


def _named(text: str) -> list[bytes]:
    """A block for each letter."""
    return [text[: end + 1].encode() for end in range(len(text))]


class Listed:
    """The rule with lists of prompts in place of digests."""

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = {}

    def matched(self, name: str, prompt: str) -> int:
        def common(other: str) -> int:
            pairs = zip(prompt, other, strict=False)
            return next(
                (i for i, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(other))
            )

        return max(map(common, self.sent.get(name, [])), default=0)

    def allowed(self, prompt: str, loads: dict[str, int]) -> set[str]:
        """The replicas that the rule leaves, of which it takes any."""
        least = min(loads.values())
        fit = [name for name, load in loads.items() if load < least + THRESHOLD]
        most = max(self.matched(name, prompt) for name in fit)
        fit = [name for name in fit if self.matched(name, prompt) == most]
        fewest = min(loads[name] for name in fit)
        return {name for name in fit if loads[name] == fewest}


@given(st.lists(st.tuples(LETTERS, LOADS), max_size=30))
def test_a_replica_with_most_of_the_prompt_that_is_not_overloaded_takes_it(
    events: list[tuple[str, dict[str, int]]],
) -> None:
    routing, listed = PrefixRouting(THRESHOLD, match_rate_threshold=0.0), Listed()
    for prompt, loads in events:
        listed.sent = {name: its for name, its in listed.sent.items() if name in loads}
        routing.keep(loads)
        chosen = routing.choose(_named(prompt), loads)
        assert chosen in listed.allowed(prompt, loads)
        routing.add(_named(prompt), chosen)
        listed.sent.setdefault(chosen, []).append(prompt)


@given(LETTERS.filter(bool), LOADS)
def test_equal_prompts_go_to_one_replica_until_it_is_overloaded(
    prompt: str, loads: dict[str, int]
) -> None:
    routing, blocks = PrefixRouting(THRESHOLD), _named(prompt)
    first = routing.choose(blocks, loads)
    routing.add(blocks, first)
    least = min(load for load in loads.values())
    for load in range(least, least + THRESHOLD):
        assert routing.choose(blocks, loads | {first: load}) == first
    if len(loads) > 1:
        others = min(load for name, load in loads.items() if name != first)
        assert routing.choose(blocks, loads | {first: others + THRESHOLD}) != first


@given(st.integers(1, 4), st.lists(st.text("xyz", min_size=1, max_size=6), max_size=60))
def test_no_replica_has_more_than_the_threshold_above_another(
    count: int, prompts: list[str]
) -> None:
    """Whatever comes while nothing ends; prompts that share nothing are spread evenly."""
    routing = PrefixRouting(THRESHOLD)
    for spread in (False, True):
        loads = Counter(dict.fromkeys(REPLICAS[:count], 0))
        for number, prompt in enumerate(prompts):
            blocks = [f"{number}".encode()] if spread else _named(prompt)
            chosen = routing.choose(blocks, loads)
            routing.add(blocks, chosen)
            loads[chosen] += 1
            assert max(loads.values()) - min(loads.values()) <= (1 if spread else THRESHOLD)


def test_a_replica_that_has_gone_takes_what_it_knew_with_it() -> None:
    routing, blocks = PrefixRouting(), _named("xyxyxyxy")
    loads = {"a": 0, "b": 0}
    gone = routing.choose(blocks, loads)
    routing.add(blocks, gone)
    routing.keep(set(loads) - {gone})
    assert routing.num_blocks == {}
    left = next(iter(set(loads) - {gone}))
    assert routing.choose(blocks, {left: 5}) == left
    routing.add(blocks, left)
    routing.keep(loads)  # one of that name is started again: without a cache
    assert routing.choose(blocks, loads) == left


@given(st.lists(LETTERS, max_size=40))
def test_memory_is_bounded(prompts: list[str]) -> None:
    routing = PrefixRouting(blocks_of_replica=5)
    for number, prompt in enumerate(prompts):
        routing.add(_named(prompt + str(number)), REPLICAS[number % 2])
        assert all(count <= 5 for count in routing.num_blocks.values())
    assert len(routing.num_blocks) <= 2


def test_too_small_a_part_of_a_prompt_does_not_count() -> None:
    routing = PrefixRouting(match_rate_threshold=0.1)
    routing.add([b"0"], "a")
    ten, eleven = [str(i).encode() for i in range(10)], [str(i).encode() for i in range(11)]
    assert routing.choose(ten, {"a": 1, "b": 0}) == "a"
    assert routing.choose(eleven, {"a": 1, "b": 0}) == "b"


def test_processes_that_have_never_met_choose_one_replica_for_a_new_prompt() -> None:
    loads = dict.fromkeys(REPLICAS, 0)
    chosen = [PrefixRouting().choose(_named(f"x{number}"), loads) for number in range(40)]
    again = [PrefixRouting().choose(_named(f"x{number}"), loads) for number in range(40)]
    assert chosen == again
    firsts = [PrefixRouting().choose([str(n).encode()], loads) for n in range(40)]
    assert set(firsts) == set(REPLICAS), "but not one for all"


BODY = {"model": "m", "messages": [{"role": "user", "content": "x" * 500}]}


def blocks(**changes: Any) -> list[bytes]:
    return prompt_blocks(json.dumps(BODY | changes).encode())


def shared(one: list[bytes], other: list[bytes]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def test_a_conversation_that_goes_on_shares_what_it_had() -> None:
    longer = [*BODY["messages"], {"role": "assistant", "content": "y" * 200}]
    before, after = blocks(), blocks(messages=longer)
    assert len(before) >= 500 // BLOCK_BYTES and shared(before, after) >= len(before) - 1
    # What is no part of the prompt makes no difference, nor does the order of fields.
    assert blocks(temperature=0.5, max_tokens=3) == before
    assert prompt_blocks(json.dumps(dict(reversed(BODY.items()))).encode()) == before


@pytest.mark.parametrize(
    "change", [{"model": "n"}, {"cache_salt": "s"}, {"tools": [{"name": "f"}]}, {"system": "s"}]
)
def test_what_a_model_reads_first_keeps_prompts_apart(change: dict[str, Any]) -> None:
    assert shared(blocks(), blocks(**change)) == 0


@pytest.mark.parametrize("name", ["prompt", "input"])
def test_prompts_of_other_endpoints_have_blocks(name: str) -> None:
    for value in ("x" * 300, ["x" * 300], list(range(300))):
        body = {"model": "m", name: value}
        assert len(prompt_blocks(json.dumps(body).encode())) >= 4


@given(st.binary(max_size=200))
def test_any_bytes_may_come(body: bytes) -> None:
    prompt_blocks(body)


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b'"x"', b"{}", b"[" * 100_000])
def test_what_is_no_request_has_no_blocks(body: bytes) -> None:
    assert prompt_blocks(body) == []


def test_a_very_long_prompt_has_a_bounded_number() -> None:
    body = json.dumps({"prompt": "x" * (MAX_BLOCKS * BLOCK_BYTES * 2)}).encode()
    assert len(prompt_blocks(body)) == MAX_BLOCKS
