"""Hashes of prefixes: of the whole prefix, whatever the pieces in which it came."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.speculation.draft_cache import PrefixHashes

TOKENS = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 3), min_size=1, max_size=700)


def whole(tokens: list[int]) -> np.ndarray:
    return PrefixHashes().upto(tokens)


@given(tokens=TOKENS, cuts=st.lists(st.integers(0, 699), max_size=5))
def test_pieces_and_the_whole_are_the_same(tokens: list[int], cuts: list[int]) -> None:
    hashes, expected = PrefixHashes(), whole(tokens)
    for cut in sorted(cuts):
        beyond = hashes.beyond(tokens[len(hashes.known) : cut])
        assert (beyond == expected[len(hashes.known) : cut]).all()
        hashes.upto(tokens[: max(cut, len(hashes.known))])
    assert (hashes.upto(tokens) == expected).all()
    for cut in sorted(cuts, reverse=True):  # others in place of some
        hashes.cut(min(cut, len(tokens)))
        hashes.upto([*tokens[:cut], 5, 6])
        assert (hashes.known == whole([*tokens[:cut], 5, 6])).all()


@given(tokens=TOKENS, place=st.integers(0, 699), other=st.integers(0, 9))
def test_one_other_token_changes_all_behind_it(tokens: list[int], place: int, other: int) -> None:
    place %= len(tokens)
    changed = [*tokens[:place], tokens[place] + 1 + other, *tokens[place + 1 :]]
    same = whole(tokens) == whole(changed)
    assert same[:place].all() and not same[place:].any()


@given(tokens=TOKENS, salt=st.text(max_size=3))
def test_salts_share_no_prefix(tokens: list[int], salt: str) -> None:
    salted = PrefixHashes(salt + "a").upto(tokens)
    assert (salted == PrefixHashes(salt + "a").upto(tokens)).all()
    assert not (salted == whole(tokens)).any()
    assert not (salted == PrefixHashes(salt + "b").upto(tokens)).any()


def test_few_prefixes_of_few_tokens_collide() -> None:
    """20,000 prefixes of two tokens, no two alike unless they are."""
    rng = np.random.default_rng(0)
    seen: dict[int, tuple[int, ...]] = {}
    for _ in range(500):
        tokens = rng.integers(0, 2, 40).tolist()
        for i, one in enumerate(whole(tokens).tolist()):
            assert seen.setdefault(one, tuple(tokens[: i + 1])) == tuple(tokens[: i + 1])
    assert len(seen) > 10_000
