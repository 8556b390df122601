"""What Hypothesis draws for a kernel: lengths and contents of steps that fit its sizes."""

import numpy as np
from hypothesis import strategies as st

from tests.kernels.cases import Case, Lengths, Sizes, make_case


def seeds(sizes: Sizes | None = None) -> st.SearchStrategy[int]:
    """Seeds of random contents. Hypothesis draws uniformly from 24 bits at most."""
    return st.integers(0, 2**24 - 1)


def lengths(sizes: Sizes, decode_only: bool = False) -> st.SearchStrategy[Lengths]:
    """Decodes, prefill chunks, or both, in any order; at least one sequence."""
    decode_only = decode_only or sizes.decode_only
    if sizes.few_examples:
        return seeds().map(lambda seed: _full_step(seed, sizes, decode_only))
    return _drawn_lengths(sizes, decode_only)


def long_lengths(sizes: Sizes) -> st.SearchStrategy[Lengths]:
    """Lengths for `sizes.long()`: the first context takes more than half of the room."""
    long = sizes.long()

    def stretch(lengths: Lengths, extra: int) -> Lengths:
        (new, old), *others = lengths
        return [(new, max(old, long.context - new - extra)), *others]

    extra = st.integers(0, max(long.context // 2 - long.tokens, 0))
    return st.builds(stretch, lengths(long), extra)


@st.composite
def _drawn_lengths(draw: st.DrawFn, sizes: Sizes, decode_only: bool) -> Lengths:
    """(query tokens, earlier tokens) of each sequence; they fit the sizes. These shrink well."""
    new = st.just(1)
    if not decode_only:
        # One token, a few, about one tile of queries, and anything.
        near_tile = st.integers(max(sizes.tile - 2, 1), sizes.tile + 2)
        anything = st.integers(1, max(sizes.tokens * 3 // 4, 1))
        new = st.one_of(new, st.integers(1, 4), near_tile, anything)
    lengths: Lengths = []
    left = sizes.tokens
    for _ in range(draw(st.integers(1, sizes.seqs))):
        count = min(draw(new), left, sizes.context)
        if count == 0:
            break
        most = sizes.context - count
        # A few, up to the end of a block or of what a kernel takes at a time, and anything.
        edges = [edge - count for edge in _edges(sizes) if 0 <= edge - count <= most]
        old = st.one_of(st.integers(0, min(20, most)), st.integers(0, most))
        lengths.append((count, draw(st.one_of(old, st.sampled_from(edges)) if edges else old)))
        left -= count
    return lengths


def _full_step(seed: int, sizes: Sizes, decode_only: bool) -> Lengths:
    """A full step, and different ones for different seeds: for where examples are few.

    A half of the sequences are prefills, and one is left out, so that there is padding. A half of
    the lengths are about where something may change.
    """
    rng = np.random.default_rng(seed)
    count = min(max(sizes.seqs - 1, 1), sizes.tokens)
    new = np.ones(count, int)
    if not decode_only:
        prefills = rng.permutation(count)[: -(-count // 2)]
        left = sizes.tokens - count
        for i in prefills:
            tiles = sizes.tile * int(rng.integers(1, 3)) + int(rng.integers(-1, 2))
            more = tiles - 1 if rng.random() < 0.5 else int(rng.integers(1, sizes.tokens + 1))
            new[i] += min(max(more, 0), left, sizes.context - 1)
            left -= new[i] - 1
    lengths: Lengths = []
    for queries in new.tolist():
        edges = [edge - queries for edge in _edges(sizes) if queries <= edge]
        old = int(rng.integers(0, sizes.context - queries + 1))
        lengths.append((queries, int(rng.choice(edges)) if edges and rng.random() < 0.5 else old))
    return lengths


def _edges(sizes: Sizes) -> list[int]:
    """Contexts at which a block, or what a kernel takes at a time, ends: and one more or less."""
    blocks = {geometry[0] for geometry in sizes.geometries}
    ends = {end for size in {*blocks, sizes.step} for end in range(size, sizes.context + 1, size)}
    return sorted({end + d for end in ends for d in (-1, 0, 1) if 0 < end + d <= sizes.context})


def cases(sizes: Sizes, decode_only: bool = False) -> st.SearchStrategy[Case]:
    """Steps of any of the sizes' geometries."""
    return _cases(sizes, lengths(sizes, decode_only), decode_only)


def decodes(sizes: Sizes) -> st.SearchStrategy[Case]:
    """Steps that are known to be decodes only."""
    return cases(sizes, decode_only=True)


def long_cases(sizes: Sizes) -> st.SearchStrategy[Case]:
    """Small steps of the longest contexts."""
    return _cases(sizes.long(), long_lengths(sizes), False)


def _cases(
    sizes: Sizes, lengths: st.SearchStrategy[Lengths], decode_only: bool
) -> st.SearchStrategy[Case]:
    geometries = st.sampled_from(sizes.geometries)
    return st.builds(make_case, lengths, seeds(), geometries, st.just(sizes), st.just(decode_only))
