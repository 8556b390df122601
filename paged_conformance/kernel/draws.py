"""What Hypothesis draws for a kernel: steps that fit its sizes, as plain JSON."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from paged_conformance.kernel.cases import ONE_IN, Lengths, Step, step_of
from paged_conformance.kernel.sizes import Sizes, of_numbers
from paged_conformance.properties import Capabilities


def sizes_of(has: Capabilities) -> Sizes:
    """The sizes that a target asked for, in steps that suit what it takes."""
    sizes = of_numbers(has.sizes)
    return sizes if "shared-blocks" in has else replace(sizes, shared=False)


def seeds(sizes: Sizes | None = None) -> st.SearchStrategy[int]:
    """Seeds of random contents. Hypothesis draws uniformly from 24 bits at most."""
    return st.integers(0, 2**24 - 1)


def lengths(sizes: Sizes, decode_only: bool = False) -> st.SearchStrategy[Lengths]:
    """Decodes, prefill chunks, or both, in any order; at least one sequence."""
    decode_only = decode_only or sizes.decode_only
    if sizes.few_examples:
        return _telling_lengths(sizes, decode_only)
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


@st.composite
def _telling_lengths(draw: st.DrawFn, sizes: Sizes, decode_only: bool) -> Lengths:
    """A full step. Where a failure is made smaller, a few have less, and others tend to it."""
    full = _full_step(draw(seeds()), sizes, decode_only)
    if not sizes.shrink:
        return full
    full = full[: draw(st.sampled_from([*range(1, len(full)), *[len(full)] * 4 * len(full)]))]
    keeps = [draw(st.sampled_from([(1, 0), (1, 1), *[(0, 0)] * 14])) for _ in full]
    return [
        (new if not less else 1, old if not less else old * (drop == 1))
        for (new, old), (less, drop) in zip(full, keeps, strict=True)
    ]


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


def steps(sizes: Sizes, decode_only: bool = False) -> st.SearchStrategy[Step]:
    """Steps of any of the sizes' geometries."""
    return _steps(sizes, lengths(sizes, decode_only), decode_only)


def first_steps(sizes: Sizes, decode_only: bool = False) -> st.SearchStrategy[Step]:
    """Steps of the sizes' first geometry."""
    return steps(replace(sizes, geometries=sizes.geometries[:1]), decode_only)


def decodes(sizes: Sizes) -> st.SearchStrategy[Step]:
    """Steps that are known to be decodes only."""
    return steps(sizes, decode_only=True)


def long_steps(sizes: Sizes) -> st.SearchStrategy[Step]:
    """Small steps of the longest contexts."""
    return _steps(sizes.long(), long_lengths(sizes), False)


def fixed_step(sizes: Sizes, geometry: tuple[int, int, int, int]) -> Step:
    """A decode of a full context, a chunk after others, a prompt, and a decode of nothing."""
    chunk = 1 if sizes.decode_only else max(min(sizes.tokens // 3, sizes.context), 1)
    before = min(sizes.context // 2, sizes.context - chunk)
    lengths = [(1, sizes.context - 1), (chunk, before), (chunk, 0), (1, 0)]
    while sum(new for new, _ in lengths) > sizes.tokens or len(lengths) > sizes.seqs:
        lengths.pop()
    return step_of(lengths, 7, geometry, sizes)


@st.composite
def _steps(
    draw: st.DrawFn, sizes: Sizes, lengths: st.SearchStrategy[Lengths], decode_only: bool
) -> Step:
    chosen, geometry = draw(lengths), draw(st.sampled_from(sizes.geometries))
    step = step_of(chosen, draw(seeds()), geometry, sizes, decode_only)
    if sizes.few_examples:
        return step
    # Drawn one by one, so that a smaller example shows whether they matter.
    shared = []
    blocks = [-(-(new + old) // geometry[0]) for new, old in chosen]
    for i in range(1, len(chosen) if sizes.shared else 1):
        if draw(st.integers(0, ONE_IN - 1)) == ONE_IN - 1:
            other = draw(st.integers(0, i - 1))
            shared.append([i, other, draw(st.integers(1, min(blocks[i], blocks[other])))])
    return step | {"shared": shared, "layer": draw(st.integers(0, sizes.layers - 1))}
