"""I25: content nodes compare exactly, whatever their hashes, however long their chains."""

import pytest

from jax_engine.core.prefix_cache import Node, PrefixCache


def chain(length: int, salt: str | None = None, first: int = 0) -> Node:
    node = Node(None, (first,), salt, lambda _: 0)
    for token in range(1, length):
        node = Node(node, (token,), salt, lambda _: 0)
    return node


def test_i25_nodes_of_one_hash_are_told_apart() -> None:
    assert chain(3) == chain(3)
    assert chain(3) != chain(4)
    assert chain(2) != chain(1, first=1) != chain(2)  # differ in length only
    assert chain(3) != chain(3, salt="a")
    assert chain(3) != chain(3, first=9)  # differs at the root only
    assert chain(3) != object()


def test_i25_comparison_is_not_recursive() -> None:
    assert chain(20_000) == chain(20_000)
    assert chain(20_000) != chain(20_000, first=1)


def test_each_block_is_hashed_once_and_with_those_before_it() -> None:
    hashed: list[tuple[object, ...]] = []

    def count(key: tuple[object, ...]) -> int:
        hashed.append(key)
        return hash(key)

    cache, nodes = PrefixCache(2, count), []
    cache.extend_chain(nodes, range(9), 3, None)
    cache.extend_chain(nodes, range(9), 4, None)
    cache.extend_chain(nodes, range(9), 4, None)
    assert len(nodes) == len(hashed) == 4
    assert [key[0] for key in hashed] == [None, *map(hash, hashed[:3])]


def test_chains_that_were_looked_up_share_their_nodes() -> None:
    cache, first, second = PrefixCache(2), [], []
    cache.extend_chain(first, range(8), 4, None)
    cache.register(first, [10, 11, 12, 13], 0, 4, 8)
    cache.extend_chain(second, range(8), 4, None)
    assert cache.match(second, 4) == [10, 11, 12, 13]
    assert all(a is b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("evicted", [0, 1])
def test_a_lookup_ends_at_the_first_miss(evicted: int) -> None:
    cache, nodes = PrefixCache(2), []
    cache.extend_chain(nodes, range(6), 3, None)
    cache.register(nodes, [0, 1, 2], 0, 3, 6)
    cache.evict(evicted)
    cache.evict(7)  # never held anything
    assert cache.match(nodes, 3) == [0, 1, 2][:evicted]
    assert len(cache) == 2


def test_i29_a_salt_divides_the_first_block_already() -> None:
    assert chain(1) != chain(1, salt="a") != chain(1, salt="b")
    cache = PrefixCache(2)
    mine, other = [], []
    cache.extend_chain(mine, range(2), 1, "a")
    cache.register(mine, [5], 0, 1, 2)
    cache.extend_chain(other, range(2), 1, "b")
    assert cache.match(other, 1) == []
    assert cache.match(mine, 1) == [5]
