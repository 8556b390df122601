"""The sampler against each rule restated token by token (I49)."""

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reference.logits import penalise
from reference.random_numbers import uniform
from reference.sampling import (
    distribution,
    draw,
    keep_min_p,
    keep_top_k,
    keep_top_n_sigma,
    keep_top_p,
    log_softmax,
    sample,
)


@dataclass(frozen=True)
class Params:
    temperature: float = 1.0
    top_n_sigma: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    min_tokens: int = 0
    stop_token_ids: list[int] = field(default_factory=list)


# Whole numbers make ties; the others differ enough for their probabilities to differ.
logits_of = st.lists(
    st.one_of(st.integers(-3, 3), st.integers(-9000, 9000).map(lambda x: x / 1000)),
    min_size=1,
    max_size=12,
).map(lambda logits: np.array(logits, dtype=np.float64))
top_ks = st.integers(-1, 14)
top_ps = st.floats(0.01, 1.0)
min_ps = st.floats(0.0, 1.0)
sigmas = st.floats(0.0, 4.0)
all_params = st.builds(
    Params,
    temperature=st.floats(0.1, 3.0),
    top_n_sigma=st.just(0.0) | sigmas,
    top_k=top_ks,
    top_p=top_ps,
    min_p=min_ps,
)
tokens = st.lists(st.integers(0, 7), max_size=10)
VOCABULARY = np.linspace(-2.0, 2.0, 8)


def probabilities(logits: np.ndarray) -> list[float]:
    weights = [math.exp(x) for x in logits]
    return [w / sum(weights) for w in weights]


def test_log_softmax_is_of_the_raw_logits() -> None:
    logits = np.array([1000.0, 999.0, -np.inf], dtype=np.float32)
    expected = [-math.log1p(math.exp(-1)), -1 - math.log1p(math.exp(-1)), -np.inf]
    np.testing.assert_allclose(log_softmax(logits), expected)


@given(logits=logits_of, n=sigmas, forbidden=st.integers(0, 3))
def test_i49_top_n_sigma_reaches_down_from_the_largest(
    logits: np.ndarray, n: float, forbidden: int
) -> None:
    """The deviation is restated by the standard library; what is forbidden has no part in it."""
    sigma = statistics.pstdev(logits)
    assume(n == 0.0 or np.abs(logits.max() - n * sigma - logits).min() > 1e-9)
    wanted = [n == 0.0 or logit >= logits.max() - n * sigma for logit in logits]
    given = np.append(logits, [-np.inf] * forbidden)
    assert np.isfinite(keep_top_n_sigma(given, n)).tolist() == wanted + [False] * forbidden


def test_i49_top_n_sigma_includes_the_boundary() -> None:
    """The deviation is 4. Two of them end upon the lower tokens, which stay."""
    logits = np.array([9.0, 1.0, 1.0, 1.0, 9.0, -np.inf, 1.0, 9.0, 9.0])
    kept = {n: np.isfinite(keep_top_n_sigma(logits, n)).tolist() for n in (1.0, 2.0, 3.0)}
    top, all_of_them = (logits == 9).tolist(), (logits > 0).tolist()
    assert kept == {1.0: top, 2.0: all_of_them, 3.0: all_of_them}


def test_i49_top_n_sigma_is_of_the_edited_logits_at_any_temperature() -> None:
    """The first token would stay without its bias. A forbidden token counts nowhere."""
    logits, bias = np.array([9.0, 8.5, 1.0, 1.0, 50.0]), {0: -8.0, 4: -np.inf}
    for temperature in (0.1, 1.0, 10.0):
        one = Params(temperature=temperature, top_n_sigma=1.0)
        plain = distribution(logits[:4], one) > 0
        edited = distribution(logits, replace(one, logit_bias=bias)) > 0
        assert plain.tolist() == [True, True, False, False]
        assert edited.tolist() == [False, True, False, False, False]
    assert distribution(logits, Params(temperature=0.0, top_n_sigma=0.1))[4] == 1.0


def test_i49_top_k_and_top_p_are_of_what_top_n_sigma_left() -> None:
    """Alone it leaves 0.5 and 0.3; of these 0.6 takes the first one, which has 5 of 8."""
    logits = np.log([0.5, 0.3, 0.1, 0.1])
    both = [distribution(logits, Params(top_n_sigma=n, top_p=0.6)) for n in (0.0, 1.2)]
    assert [(one > 0).tolist() for one in both] == [
        [True, True, False, False],
        [True, False, False, False],
    ]
    np.testing.assert_allclose(
        distribution(logits, Params(top_n_sigma=1.2, top_k=3)), [0.625, 0.375, 0, 0]
    )


@given(logits=logits_of, k=top_ks)
def test_i49_top_k_keeps_a_token_with_fewer_than_k_above_it(logits: np.ndarray, k: int) -> None:
    kept = np.isfinite(keep_top_k(logits, k))
    for i, logit in enumerate(logits):
        above = sum(other > logit for other in logits)
        assert kept[i] == (k <= 0 or above < k)


@given(logits=logits_of, p=top_ps)
def test_i49_top_p_is_the_smallest_set_that_reaches_p(logits: np.ndarray, p: float) -> None:
    """Whole ties are added, most probable first, until the mass reaches p: boundary included."""
    by_probability = sorted(zip(probabilities(logits), logits, strict=True), reverse=True)
    mass, kept = 0.0, set()
    for level in sorted(set(logits), reverse=True):
        assume(p == 1.0 or abs(mass - p) > 1e-9)
        if mass >= p:
            break
        kept.add(level)
        mass += sum(q for q, logit in by_probability if logit == level)
    assert [np.isfinite(x) for x in keep_top_p(logits, p)] == [x in kept for x in logits]


def test_i49_top_p_includes_the_boundary_token() -> None:
    """0.5 + 0.3 crosses 0.6 and reaches 0.8; a first token that reaches it alone stays alone."""
    logits = np.log([0.5, 0.3, 0.2])
    assert np.isfinite(keep_top_p(logits, 0.6)).tolist() == [True, True, False]
    assert np.isfinite(keep_top_p(logits, 0.79)).tolist() == [True, True, False]
    assert np.isfinite(keep_top_p(logits, 0.81)).tolist() == [True, True, True]
    assert np.isfinite(keep_top_p(logits, 0.01)).tolist() == [True, False, False]


@given(logits=logits_of, min_p=min_ps)
def test_i49_min_p_is_a_share_of_the_largest(logits: np.ndarray, min_p: float) -> None:
    shares = np.exp(logits - logits.max())
    assume(np.abs(shares - min_p)[shares != 1].min(initial=1.0) > 1e-9)
    assert np.isfinite(keep_min_p(logits, min_p)).tolist() == (shares >= min_p).tolist()


@given(logits=logits_of, params=all_params)
def test_i49_the_distribution(logits: np.ndarray, params: Params) -> None:
    """It sums to 1, lies within top-k, top-p and min-p, keeps the argmax and all proportions."""
    result = distribution(logits, params)
    support = result > 0
    scaled = logits / params.temperature
    assert math.isclose(result.sum(), 1.0)
    assert support[logits == logits.max()].all()
    assert not (support & np.isneginf(keep_top_n_sigma(scaled, params.top_n_sigma))).any()
    assert not (support & np.isneginf(keep_top_k(scaled, params.top_k))).any()
    assert not (support & np.isneginf(keep_min_p(scaled, params.min_p * (1 - 1e-12)))).any()
    if params.top_k <= 0 and params.top_n_sigma == 0:  # else top-p is of what these left
        assert not (support & np.isneginf(keep_top_p(scaled, params.top_p))).any()
    plain = np.exp(scaled - scaled.max())
    np.testing.assert_allclose(result[support] / result.max(), plain[support])


@given(logits=logits_of, params=all_params, seed=st.integers(0, 1000))
def test_i49_the_order_of_the_vocabulary_does_not_matter(
    logits: np.ndarray, params: Params, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(len(logits))
    reach = params.top_n_sigma * logits.std()
    assume(np.abs(logits.max() - reach - logits)[logits != logits.max()].min(initial=1.0) > 1e-9)
    scaled = np.sort(probabilities(logits / params.temperature))[::-1]
    for boundary in (np.cumsum(scaled) - params.top_p, scaled / scaled[0] - params.min_p):
        assume(np.abs(boundary).min() > 1e-9)
    np.testing.assert_allclose(
        distribution(logits[order], params), distribution(logits, params)[order], atol=1e-15
    )


@given(logits=logits_of, params=all_params)
def test_i49_temperature_zero_is_the_argmax_lowest_id(logits: np.ndarray, params: Params) -> None:
    greedy = distribution(logits, replace(params, temperature=0.0))
    first = logits.tolist().index(logits.max())
    assert greedy.tolist() == [float(i == first) for i in range(len(logits))]
    assert distribution(logits, replace(params, temperature=9e-6)).tolist() == greedy.tolist()


def test_i49_a_falling_temperature_has_the_argmax_as_its_limit() -> None:
    logits = np.array([1.0, 1.5, 0.0])
    largest = [distribution(logits, Params(temperature=t))[1] for t in (2.0, 1.0, 0.1, 1e-2, 1e-5)]
    assert largest == sorted(largest) and largest[-1] == 1.0


@given(
    prompt=tokens,
    output=tokens,
    repetition=st.floats(0.1, 3.0),
    frequency=st.floats(-2.0, 2.0),
    presence=st.floats(-2.0, 2.0),
)
def test_i49_penalties_count_only_what_they_say(
    prompt: list[int], output: list[int], repetition: float, frequency: float, presence: float
) -> None:
    result = penalise(
        VOCABULARY,
        prompt,
        output,
        repetition_penalty=repetition,
        frequency_penalty=frequency,
        presence_penalty=presence,
    )
    counts = Counter(output)
    for token, logit in enumerate(VOCABULARY):
        if token in prompt or token in output:
            logit = logit / repetition if logit > 0 else logit * repetition
        logit = logit - frequency * counts[token] - presence * (counts[token] > 0)
        assert math.isclose(result[token], logit, abs_tol=1e-12)


def test_rules_1_to_3_come_before_the_temperature() -> None:
    params = Params(
        temperature=2.0,
        repetition_penalty=2.0,
        frequency_penalty=1.0,
        presence_penalty=0.5,
        logit_bias={0: 1.0, 2: -3.0},
    )
    result = distribution(
        np.array([4.0, 0.0, 6.0, -1.0]), params, prompt_token_ids=[0], output_token_ids=[2, 3, 2]
    )
    # 4/2 + 1;  0;  6/2 - 2*1 - 0.5 - 3;  -1*2 - 1 - 0.5;  all halved
    np.testing.assert_allclose(result, probabilities(np.array([3.0, 0.0, -2.5, -3.5]) / 2))


def test_the_logits_given_are_not_changed() -> None:
    logits = np.array([4.0, 0.0, 6.0])
    params = Params(repetition_penalty=2.0, logit_bias={1: 1.0}, min_tokens=9, stop_token_ids=[2])
    distribution(logits, params, output_token_ids=[0, 1, 2])
    assert logits.tolist() == [4.0, 0.0, 6.0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("ended_by", [{"eos_token_ids": {3}}, {}])
def test_before_min_tokens_nothing_can_end_the_output(temperature: float, ended_by: dict) -> None:
    """End-of-sequence and stop tokens alike, whatever their bias."""
    stop_token_ids = [] if ended_by else [3]
    params = Params(
        temperature=temperature, min_tokens=2, stop_token_ids=stop_token_ids, logit_bias={3: 90.0}
    )
    for length, probability in ((0, 0.0), (1, 0.0), (2, 1.0)):
        result = distribution(VOCABULARY, params, output_token_ids=[0] * length, **ended_by)
        assert result[3] == pytest.approx(probability)


@given(logits=logits_of, params=all_params, u=st.floats(0.0, 1.0, exclude_max=True))
def test_draw_inverts_the_cumulative_distribution(
    logits: np.ndarray, params: Params, u: float
) -> None:
    result = distribution(logits, params)
    token = draw(result, u)
    assert result[token] > 0
    assert math.fsum(result[:token]) <= u + 1e-12
    assert u < math.fsum(result[: token + 1]) + 1e-12


def test_the_largest_u_below_one_draws_the_last_possible_token() -> None:
    assert draw(np.array([0.1] * 10 + [0.0]), math.nextafter(1.0, 0.0)) == 9


def test_i49_chi_square_on_a_large_draw() -> None:
    """10,000 tokens; 27.9 is the 99.99th percentile of chi-square at 6 degrees of freedom."""
    params = Params(temperature=1.5, top_k=7)
    expected = distribution(VOCABULARY, params)
    draws = [draw(expected, uniform(1234, position)) for position in range(10_000)]
    observed = np.bincount(draws, minlength=8)
    assert observed[0] == expected[0] == 0
    chi_square = ((observed - 10_000 * expected)[1:] ** 2 / (10_000 * expected[1:])).sum()
    assert chi_square < 27.9


@given(params=all_params, prompt=tokens, output=tokens, seed=st.integers(0, 2**63 - 1))
def test_a_token_depends_on_seed_and_position_alone(
    params: Params, prompt: list[int], output: list[int], seed: int
) -> None:
    history = {"prompt_token_ids": prompt, "output_token_ids": output}
    token = sample(VOCABULARY, params, **history, seed=seed)
    u = uniform(seed, len(prompt) + len(output))
    assert token == draw(distribution(VOCABULARY, params, **history), u)
