"""The workloads of the tutorial's chapter on radix trees: what both caches find, by brute force."""

from itertools import takewhile

import pytest

from scripts.tutorial.prefix_workloads import (
    BLOCK_SIZE,
    WORKLOADS,
    Program,
    Tokens,
    chain_finds,
    one_by_one,
    programs,
    room_for_all,
    share,
    side_by_side,
    tree_finds,
)

SMALL = 8192


def longest(requests: Program) -> list[int]:
    """Tokens that each prompt has in common with an earlier request; one is left to compute."""
    seen: dict[int, list[Tokens]] = {}  # by the first token: others share nothing
    found = []
    for prompt, output in requests:
        shared = [
            len(list(takewhile(lambda pair: pair[0] == pair[1], zip(prompt, one, strict=False))))
            for one in seen.get(prompt[0], [])
        ]
        found.append(min(max(shared, default=0), len(prompt) - 1))
        seen.setdefault(prompt[0], []).append(prompt + output)
    return found


@pytest.mark.parametrize("name", WORKLOADS)
def test_both_caches_find_what_there_is(name: str) -> None:
    """A chain finds the same in whole blocks; no cache finds more in less room."""
    requests = one_by_one(programs(name, seed=3))[:80]
    room, there = room_for_all(requests), longest(requests)
    assert tree_finds(requests, room) == there
    assert chain_finds(requests, room) == [n // BLOCK_SIZE * BLOCK_SIZE for n in there]
    for finds in (tree_finds, chain_finds):
        assert all(a <= b for a, b in zip(finds(requests, SMALL), there, strict=True))


@pytest.mark.parametrize("name", WORKLOADS)
def test_side_by_side_keeps_each_program_s_order(name: str) -> None:
    work = programs(name)
    mixed = side_by_side(work)
    place = {id(request): number for number, request in enumerate(mixed)}
    assert len(mixed) == len(one_by_one(work))
    for program in work:
        places = [place[id(request)] for request in program]
        assert places == sorted(places)


def test_what_the_chapter_says_of_the_rates() -> None:
    """Beginnings that are common survive a crowd; histories do not."""
    for name in WORKLOADS:
        work = programs(name)
        alone, crowd = one_by_one(work), side_by_side(work)
        whole = share(tree_finds(alone, room_for_all(alone)), alone)
        assert share(tree_finds(alone, SMALL), alone) == whole
        left = share(tree_finds(crowd, SMALL), crowd)
        if name in ("MMLU, 5-shot", "HellaSwag, 20-shot", "generative agents"):
            assert left > whole - 0.1, name
        elif name in ("LLM judge", "JSON decoding", "chat, short answers", "chat, long answers"):
            assert left < 5 < 60 < whole, name
        else:
            assert 75 < left < whole - 5, name
