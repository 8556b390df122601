"""Whoever follows the events knows at each moment which blocks a prompt could hit."""

from hypothesis import event, given
from hypothesis import strategies as st

from jax_engine.core import Scheduler
from jax_engine.core.block_digest import digest_function
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.kv_events import BlockEvicted, BlocksStored, CacheCleared, KVEvents
from jax_engine.errors import InvalidRequestError
from tests.core.build import make_group, make_scheduler, step

digest = digest_function("sha256")


class Follower:
    """A router: all that it knows is what events say."""

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks, self._events = blocks, blocks.record_events()
        self.known: set[bytes] = set()
        self.kinds: set[str] = set()

    def follow(self) -> None:
        for one in self._events.take():
            self.kinds.add(type(one).__name__)
            match one:
                case BlocksStored(nodes):
                    assert nodes, "an event without blocks"
                    parents = [node.parent for node in nodes]
                    assert parents[1:] == list(nodes[:-1]), "not a chain"
                    names = [digest(node) for node in nodes]
                    assert not self.known & set(names), "stored twice"
                    self.known |= set(names)
                case BlockEvicted(node):
                    assert digest(node) in self.known, "removed what was not stored"
                    self.known.remove(digest(node))
                case CacheCleared():
                    self.known.clear()
        contents = [digest(node) for node in self._blocks.cached_contents()]
        assert len(set(contents)) == len(contents)
        assert self.known == set(contents)


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
ACTIONS = st.one_of(
    st.tuples(st.just("add"), PROMPTS, st.integers(1, 3), st.sampled_from([None, "s"])),
    st.tuples(st.just("abort"), st.integers(0, 9)),
    st.tuples(st.just("reset")),
    st.tuples(st.just("lose")),
    st.tuples(st.just("step")),
    st.tuples(st.just("step")),
)


@given(
    st.integers(4, 12),
    st.sampled_from([0, 8]),
    st.sampled_from(["recompute", "swap"]),
    st.lists(ACTIONS, min_size=5, max_size=40),
)
def test_i25_events_tell_what_is_cached(
    num_blocks: int, num_cpu_blocks: int, mode: str, actions: list[tuple[object, ...]]
) -> None:
    scheduler = make_scheduler(
        num_blocks, num_cpu_blocks, caching=True, preemption_mode=mode, max_model_len=16
    )
    router, names = Follower(scheduler.block_manager), []
    for action in actions:
        _act(scheduler, action, names)
        router.follow()
    for kind in router.kinds:
        event(kind)


def _act(scheduler: Scheduler, action: tuple[object, ...], names: list[str]) -> None:
    match action:
        case ("add", list(prompt), int(n), salt):
            name = str(len(names))
            group = make_group(name, prompt, arrival=float(len(names)), n=n, max_tokens=6)
            group.cache_salt = salt  # type: ignore[assignment]
            try:
                scheduler.check_group(group)
            except InvalidRequestError:
                return
            scheduler.add_group(group)
            names.append(name)
        case ("abort", int(number)) if names:
            scheduler.abort(names[number % len(names)])
        case ("reset",):
            scheduler.block_manager.reset_prefix_cache()
        case ("lose",):
            scheduler.clear()
        case ("step",) if scheduler.groups:
            step(scheduler)


def test_a_run_is_one_event_and_a_gap_ends_it() -> None:
    """A duplicate is not stored again: what follows it is an event that names it as its parent."""
    blocks = BlockManager(2, 8, enable_prefix_caching=True)
    events = blocks.record_events()
    blocks.allocate_slots(0, [1, 1, 2, 2], 0, 4)
    (first,) = events.take()
    assert isinstance(first, BlocksStored)
    assert [node.tokens for node in first.nodes] == [(1, 1), (2, 2)]
    blocks.allocate_slots(1, [1, 1, 3, 3, 4, 4], 0, 6)  # without its hit: a duplicate of the first
    (second,) = events.take()
    assert isinstance(second, BlocksStored)
    assert [node.tokens for node in second.nodes] == [(3, 3), (4, 4)]
    assert second.nodes[0].parent is first.nodes[0]


def test_what_is_cleared_is_not_told_before() -> None:
    blocks = BlockManager(2, 8, enable_prefix_caching=True)
    events = blocks.record_events()
    blocks.allocate_slots(0, [1, 1, 2, 2], 0, 4)
    blocks.clear()
    assert events.take() == [CacheCleared()]
    assert events.take() == []


def test_nobody_is_told_unless_asked() -> None:
    blocks = BlockManager(2, 8, enable_prefix_caching=True)
    blocks.allocate_slots(0, [1, 1], 0, 2)
    assert blocks._cache.events is None
    assert isinstance(blocks.record_events(), KVEvents)
