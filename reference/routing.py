"""Which of several replicas computes a request? The rules of routers (beyond the paper).

Several replicas of a model serve one stream of requests. Each has a KV cache of its own, so a
request is cheap where its prefix is cached (`prefix_cache`) and late where many others run. A
*rule* is given what a router knows and returns the replicas that are equally good:

- *loads*: of each live replica, the requests that were sent to it and have not ended;
- *matches*: of replicas that have the beginning of the prompt cached, how many of its tokens;
- *prompt_len*: the prompt's length in tokens.

Four rules are here. `round_robin` looks at nothing. `least_loaded` looks at loads. `longest_prefix`
looks at matches, and at loads where these are equal. `PrefixAndLoad` follows the prefix unless the
replica that has it is overloaded. Of equally good replicas, `Router` takes the next in turn.

>>> loads, matches = {0: 2, 1: 0, 2: 5}, {0: 64, 2: 64}
>>> round_robin(loads, matches, 100), least_loaded(loads, matches, 100)
([0, 1, 2], [1])
>>> longest_prefix(loads, matches, 100)                # 0 and 2 have it; 0 has less to do
[0]
>>> PrefixAndLoad(max_excess=1)(loads, matches, 100)   # 2 is more than 1 above 0, the least load
[1]
>>> router = Router(least_loaded)
>>> [router.choose({0: 1, 1: 1, 2: 9}, {}, 100) for _ in range(3)]
[0, 1, 0]

Published routers have these rules in many forms. SGLang's cache-aware policy, which vLLM's router
shares, sends a request to the longest match if that is 30 % of the prompt or more, and to the least
load while the replicas are out of balance: the busiest has over 64 requests more than the idlest,
and over 1.5 times as many. llm-d and the Gateway API's endpoint picker add up scores of prefix,
queue and KV cache; vLLM's production stack subtracts relative load from the matched share.
`PrefixAndLoad` has SGLang's three thresholds. It compares the load of the replica that has the
prefix, not of the busiest one, with the least: among many replicas some are always busy, and that
alone should not turn the cache off for everybody else.

Routers know matches from the replicas' KV events (blocks stored and removed). `PrefixIndex` is such
a router's memory:

>>> index = PrefixIndex()
>>> for replica, block in ((0, "A"), (0, "AB"), (1, "A")):
...     index.store(replica, block)
>>> index.matches(["A", "AB", "ABC"])                  # blocks, by replica
{1: 1, 0: 2}
>>> index.remove(0, "A")
>>> index.matches(["A", "AB", "ABC"])                  # no chain leads to AB any more
{1: 1}
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

Loads = Mapping[int, int]
Matches = Mapping[int, int]
Rule = Callable[[Loads, Matches, int], list[int]]


def round_robin(loads: Loads, matches: Matches, prompt_len: int) -> list[int]:
    """All live replicas."""
    return list(loads)


def least_loaded(loads: Loads, matches: Matches, prompt_len: int) -> list[int]:
    """The replicas with the fewest requests."""
    least = min(loads.values())
    return [replica for replica, load in loads.items() if load == least]


def longest_prefix(loads: Loads, matches: Matches, prompt_len: int) -> list[int]:
    """The replicas with the longest match, of these the least loaded."""
    longest = max((length for replica, length in matches.items() if replica in loads), default=0)
    if longest == 0:
        return least_loaded(loads, matches, prompt_len)
    holders = {one: load for one, load in loads.items() if matches.get(one) == longest}
    return least_loaded(holders, matches, prompt_len)


@dataclass(frozen=True)
class PrefixAndLoad:
    """The longest match, unless it is short or its replica is overloaded: then the least load.

    Attributes:
        min_share: A match counts if it is this share of the prompt or more.
        max_excess, max_ratio: A replica is overloaded if its load is over `max_excess` requests
            above the least load, and over `max_ratio` times the least.
    """

    min_share: float = 0.3
    max_excess: int = 64
    max_ratio: float = 1.5

    def __call__(self, loads: Loads, matches: Matches, prompt_len: int) -> list[int]:
        least = least_loaded(loads, matches, prompt_len)
        best = longest_prefix(loads, matches, prompt_len)
        load, lowest = loads[best[0]], loads[least[0]]
        is_short = matches.get(best[0], 0) < self.min_share * prompt_len
        is_overloaded = load > lowest + self.max_excess and load > self.max_ratio * lowest
        return least if is_short or is_overloaded else best


class Router:
    """A rule, and turns among the replicas that it finds equally good."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._last = -1

    def choose(self, loads: Loads, matches: Matches, prompt_len: int) -> int:
        """The replica for a request. Raises ValueError if no replica is live."""
        if not loads:
            raise ValueError("loads={} names no live replica; one at least must take the request")
        good = self.rule(loads, matches, prompt_len)
        self._last = min((one for one in good if one > self._last), default=min(good))
        return self._last


class PrefixIndex:
    """Which replicas have a block. A block is known by a name that stands for its whole prefix."""

    def __init__(self) -> None:
        self._holders: dict[Hashable, set[int]] = {}

    def store(self, replica: int, block: Hashable) -> None:
        self._holders.setdefault(block, set()).add(replica)

    def remove(self, replica: int, block: Hashable) -> None:
        """Forget that a replica has a block, which it must have."""
        self._holders[block].remove(replica)
        if not self._holders[block]:
            del self._holders[block]

    def matches(self, blocks: Iterable[Hashable]) -> dict[int, int]:
        """How many of these blocks each replica has without a gap, if it has the first."""
        found: dict[int, int] = {}
        left: set[int] | None = None
        depth = 0
        for block in blocks:
            holders = self._holders.get(block, set())
            still = holders if left is None else left & holders
            found |= dict.fromkeys((left or set()) - still, depth)
            left, depth = still, depth + 1
            if not left:
                break
        return found | dict.fromkeys(left or set(), depth)
