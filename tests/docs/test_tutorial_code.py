"""The code that the tutorial's pages show, beside the oracle or a search by brute force."""

import subprocess
import sys
from itertools import takewhile

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.serving.messages import Add, Outputs, decode_report, encode
from reference.parameters import parameters
from reference.sampling import distribution, draw
from scripts.tutorial import toy_engine_process as toy
from scripts.tutorial.radix_tree import RadixTree
from scripts.tutorial.vectorised_sampler import (
    Settings,
    kth_largest,
    largest_threshold,
    sample_all,
)
from tests.meta.trees import ROOT
from tests.support.patience import HANG_S

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), max_size=8)


def in_common(a: list[int], b: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))


@given(PROMPTS)
def test_a_radix_tree_finds_the_longest_known_prefix(prompts: list[list[int]]) -> None:
    """And the slots of each token are those that were given first to its prefix."""
    tree, owner = RadixTree(), dict[tuple[int, ...], int]()
    for number, tokens in enumerate(prompts):
        longest = max((in_common(tokens, one) for one in prompts[:number]), default=0)
        found = tree.lookup(tokens)
        assert len(found) == min(longest, len(tokens) - 1)
        slots = [100 * number + i for i in range(len(tokens))]
        tree.insert(tokens, slots)
        for end, slot in enumerate(slots, 1):
            owner.setdefault(tuple(tokens[:end]), slot)
        prefixes = (tuple(tokens[: end + 1]) for end in range(len(found)))
        assert found == [owner[prefix] for prefix in prefixes]
        assert all(one.tokens for one in tree.nodes()[1:])


def test_a_radix_tree_forgets_leaves_the_oldest_first() -> None:
    tree = RadixTree()
    tree.insert([1, 2, 3], [0, 1, 2])
    tree.insert([1, 2, 4], [0, 1, 3])
    assert tree.lookup([1, 2, 3, 9]) == [0, 1, 2]
    assert [tree.evict(), tree.evict(), tree.evict()] == [[3], [2], [0, 1]]
    assert tree.lookup([1, 2, 3]) == []


@given(st.integers(0, 2**32 - 1))
def test_the_vectorised_sampler_draws_the_oracle_s_tokens(seed: int) -> None:
    choose = np.random.default_rng(seed)
    logits = choose.integers(-4, 5, (8, 12)) / 2  # with ties
    settings = Settings(
        choose.choice([0.0, 0.7, 1.5], 8),
        choose.choice([0, 1, 3, 20], 8),
        choose.choice([1.0, 0.83, 0.31], 8),
        choose.choice([0.0, 0.07], 8),
    )
    u = choose.random(8)
    wanted = [
        draw(
            distribution(
                logits[row],
                parameters(**{name: one[row].item() for name, one in vars(settings).items()}),
            ),
            u[row],
        )
        for row in range(8)
    ]
    assert sample_all(logits, settings, u).tolist() == wanted
    k = np.where(settings.top_k > 0, np.minimum(settings.top_k, 12), 12)
    by_sorting = kth_largest(-np.sort(-logits, axis=1), k)
    by_bits = largest_threshold(logits, np.ones_like(logits), k.astype(float))
    np.testing.assert_array_equal(by_bits, by_sorting)


def test_the_toy_engine_answers_each_step_with_one_message_and_leaves_with_its_parent() -> None:
    command = [sys.executable, "-m", toy.__name__]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) as process:
        assert process.stdin is not None and process.stdout is not None
        toy.write(process.stdin, encode(Add("a", [5], {}, False, arrival_time=0.0)))
        for token in (6, 7):
            message = toy.read(process.stdout)
            assert message is not None
            report = decode_report(message)
            assert isinstance(report, Outputs)
            assert [one.outputs[0].token_ids for one in report.outputs] == [[token]]  # type: ignore[union-attr]
        process.stdin.close()
        while toy.read(process.stdout) is not None:
            pass
        assert process.wait(HANG_S) == 0
