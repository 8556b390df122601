"""Which of several engines takes a request."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.engine.request_router import RUNNING_TOKENS, RequestRouter

BLOCK = 4
MANY = 10**6  # blocks: nothing is ever given up
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=20)
SALTS = st.sampled_from([None, "a"])
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["choose", "choose", "output", "end"]), PROMPTS, SALTS, st.integers(0)
    ),
    max_size=40,
)


class Counted:
    """The rule with lists in place of hashes, and everything added up anew each time."""

    def __init__(self, engines: int) -> None:
        self.sent: list[list[tuple[list[int], str | None]]] = [[] for _ in range(engines)]
        self.open: dict[str, tuple[int, int]] = {}  # engine, and tokens to compute

    def known(self, engine: int, prompt: list[int], salt: str | None) -> int:
        """Tokens in full blocks that the prompt shares with one that was sent there."""
        return max(
            (
                size
                for other, its in self.sent[engine]
                for size in range(0, min(len(prompt), len(other)) + 1, BLOCK)
                if its == salt and prompt[:size] == other[:size]
            ),
            default=0,
        )

    def choose(self, name: str, prompt: list[int], salt: str | None) -> int:
        costs = []
        for engine in range(len(self.sent)):
            here = [tokens for at, tokens in self.open.values() if at == engine]
            own = len(prompt) - self.known(engine, prompt, salt)
            costs.append(sum(here) + RUNNING_TOKENS * len(here) + own)
        engine = costs.index(min(costs))
        own = len(prompt) - self.known(engine, prompt, salt)
        self.open[name] = engine, own
        self.sent[engine].append((prompt, salt))
        return engine


@given(st.integers(1, 4), EVENTS)
def test_the_engine_that_computes_a_prompt_first_takes_it(engines: int, events: list) -> None:
    router, counted = RequestRouter(engines, BLOCK, MANY), Counted(engines)
    for number, (event, prompt, salt, pick) in enumerate(events):
        if event == "choose":
            name = str(number)
            assert router.choose(name, prompt, salt) == counted.choose(name, prompt, salt)
        elif counted.open:
            name = sorted(counted.open)[pick % len(counted.open)]
            if event == "output":
                router.has_output(name)
                counted.open[name] = counted.open[name][0], 0
            else:
                router.end(name)
                del counted.open[name]
    for name in counted.open:
        router.end(name)
    assert [load.tokens for load in router._loads] == [0] * engines
    assert not router._engine_of


@pytest.mark.parametrize("num_blocks", [0, MANY])
@pytest.mark.parametrize("engines", [1, 2, 3, 5])
def test_prompts_that_share_nothing_are_spread(engines: int, num_blocks: int) -> None:
    router, taken = RequestRouter(engines, BLOCK, num_blocks), Counter[int]()
    for number in range(50):
        taken[router.choose(str(number), [number] * 9, None)] += 1
        assert max(taken.values()) - min(taken[one] for one in range(engines)) <= 1


def test_one_prompt_goes_to_one_engine_until_its_queue_costs_more_than_the_prompt() -> None:
    """2,000 tokens are worth 31 requests that run."""
    router = RequestRouter(2, 16, MANY)
    prompt = [7] * 2000
    chosen = []
    for number in range(80):
        chosen.append(router.choose(str(number), [*prompt, number], None))
        router.has_output(str(number))
    assert chosen[:31] == [0] * 31
    assert chosen.count(1) > 20 and set(chosen[-10:]) == {0, 1}


def test_without_a_prefix_cache_or_under_another_salt_nothing_is_shared() -> None:
    prompt = [1] * 5 * RUNNING_TOKENS
    for router, salts in (
        (RequestRouter(2, 16, 0), ("a", "a")),
        (RequestRouter(2, 16, MANY), ("a", "b")),
    ):
        assert router.choose("0", prompt, salts[0]) == 0
        router.has_output("0")
        assert router.choose("1", prompt, salts[1]) == 1
    router = RequestRouter(2, 16, MANY)
    assert router.choose("0", prompt, "a") == 0
    router.has_output("0")
    assert router.choose("1", prompt, "a") == 0


def test_an_engine_is_not_expected_to_keep_more_than_it_can() -> None:
    router = RequestRouter(1, BLOCK, 10)
    for number in range(30):
        router.choose(str(number), [number] * 12, None)  # three blocks each
        assert len(router._loads[0].blocks) <= 10
    kept = router._loads[0].blocks
    known = [sum(one in kept for one in router._hashes([n] * 12, None)) for n in range(30)]
    assert known == [0] * 26 + [1] + [3] * 3, "the front of the oldest is kept for longest"
    router.forget_prefixes()
    assert not kept
