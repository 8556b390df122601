"""A draw by inverse CDF, row by row, beside sums over the whole vocabulary."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine import SamplingParams
from jax_engine.sampling import draw as module
from jax_engine.sampling.sampling_inputs import SamplingInputs, sampling_row, unpack_sampling
from reference import sampling as oracle
from reference.parameters import parameters
from reference.random_numbers import uniform

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.3},
    {"temperature": 2.5, "top_k": 4},
    {"temperature": 1.0, "top_p": 0.5},
    {"temperature": 2.0, "top_n_sigma": 1.0},
    {"temperature": 1.5, "min_p": 0.3},
    {"temperature": 1.0, "top_k": 1},
]
_inverse_cdf = jax.jit(module.inverse_cdf)


def inputs_of(settings: list[dict[str, Any]], position: int) -> SamplingInputs:
    rows = np.stack([sampling_row(SamplingParams(**one), 2**40 + 9) for one in settings])
    positions = np.full(len(rows), position, np.int32)
    nothing = jnp.zeros((3, 0), jnp.int32)
    return unpack_sampling(jnp.asarray(rows), jnp.asarray(positions), nothing, nothing)


@pytest.mark.parametrize(
    "chosen",
    [[0], [0, 1, 2], [1, 2], [3, 0, 4], [1, 5], [6, 0], [7, 2], [2, 6, 3, 4, 5, 0]],
    ids=str,
)
def test_each_row_draws_what_its_own_settings_say(chosen: list[int]) -> None:
    """As the oracle does with the number of that seed and position; a greedy row never draws."""
    settings = [SETTINGS[at] for at in chosen]
    random = np.random.default_rng(1)
    draw = jax.jit(module.draw)
    for position in range(1, 9):
        logits = random.standard_normal((len(chosen), 150)).astype(np.float32) * 2
        tokens = draw(logits, inputs_of(settings, position))
        number = uniform(2**40 + 9, position)
        for row, one, token in zip(logits, settings, tokens.tolist(), strict=True):
            if not one["temperature"]:
                assert token == row.argmax()
                continue
            wanted = oracle.distribution(row.astype(np.float64), parameters(**one))
            assert abs(np.cumsum(wanted) - number).min() > 1e-6, "rounding decides"
            assert token == oracle.draw(wanted, number), one


def test_a_greedy_row_keeps_its_logits_and_the_others_are_divided() -> None:
    logits = np.float32([[1, 2], [1, 2], [1, 2]])
    tempered = module.tempered(
        jnp.asarray(logits), inputs_of([{"temperature": t} for t in (0.0, 0.5, 4.0)], 1)
    )
    assert tempered.tolist() == [[1, 2], [2, 4], [0.25, 0.5]]


@pytest.mark.parametrize("vocab", [4, 127, 128, 129, 300])
def test_a_number_finds_the_token_whose_share_holds_it(vocab: int) -> None:
    """Shares are equal but of three tokens, which have none; sums of them are exact."""
    u = np.float32(np.arange(64) / 64)
    logits = np.zeros((64, vocab), np.float32)
    logits[:, [0, vocab // 2, vocab - 1]] = [-1.0, -np.inf, np.log(0.25)]
    lowest, min_p = np.full(64, -0.5, np.float32), np.zeros(64, np.float32)
    lowest[32:], min_p[32:] = -np.inf, 0.5  # two ways to take the first and the last out
    possible = np.setdiff1d(np.arange(vocab), [0, vocab // 2, vocab - 1])
    tokens = np.asarray(_inverse_cdf(logits, lowest, min_p, u))
    assert tokens.tolist() == possible[(u * len(possible)).astype(int)].tolist()


@pytest.mark.parametrize(
    ("number", "token"),
    [
        (0.0, 3),
        (0.49, 3),
        (0.5, 64),  # the border belongs to the second one
        (0.74, 64),
        (0.75, 126),
        (0.99, 126),  # no sum is above it
        (0.75 + 2**-10, 126),  # only that of a token without a share is, by rounding
    ],
)
def test_a_group_s_token_is_a_possible_one_whatever_rounding_leaves(
    number: float, token: int
) -> None:
    weights = np.zeros((1, module.GROUP), np.float32)
    weights[0, [3, 64, 126]] = [0.5, 0.25, 0.2]
    sums = np.cumsum(weights, axis=1)
    sums[0, 64:126] = 0.75
    sums[0, 100] += 2**-9
    sums[0, 126:] = 0.95
    found = module._token_above(*map(jnp.asarray, (weights, sums, np.float32([number]))))
    assert found.tolist() == [token]


def test_what_is_just_as_probable_as_it_must_be_is_drawn() -> None:
    """The most probable token's weight is 1, and so is that of one that ties with it."""
    logits = np.float32([[2.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
    top, lowest = np.float32([2.0, 2.0]), np.float32([1.0, -np.inf])
    min_p = np.float32([0.0, 1.0])
    weights = np.asarray(module.token_weights(*map(jnp.asarray, (logits, top, lowest, min_p))))
    assert (weights > 0).tolist() == [[True, True, False]] * 2
    assert weights[:, 0].tolist() == [1.0, 1.0]


def test_a_first_group_without_a_possible_token_is_never_drawn_from() -> None:
    """Not even by the number 0."""
    logits = np.zeros((1, 3 * module.GROUP), np.float32)
    logits[0, : module.GROUP + 2] = -np.inf
    tokens = _inverse_cdf(logits, np.float32([-np.inf]), np.float32([0]), np.float32([0]))
    assert tokens.tolist() == [module.GROUP + 2]


def test_numbers_are_of_the_seed_and_the_position() -> None:
    seeds = [0, 1, 2**32, 2**63 + 5]
    words = np.array([[seed >> 32, seed & 0xFFFFFFFF] for seed in seeds], np.uint32)
    for position in (0, 1, 77):
        found = module.uniforms(jnp.asarray(words), jnp.full(len(seeds), position))
        assert found.tolist() == [uniform(seed, position) for seed in seeds]
