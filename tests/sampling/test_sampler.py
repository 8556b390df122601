"""The vectorised sampler against the reference's rules, any mixture of requests in one batch."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cpu_kernels.sampling.draw import draw as draw_on_cpu
from jax_engine import SamplingParams
from jax_engine.sampling.draw import (
    GROUP,
    inverse_cdf,
    most_probable,
    token_weights,
    uniforms,
)
from jax_engine.sampling.filters import lowest_kept
from jax_engine.sampling.masked_steps import token_bits
from jax_engine.sampling.sampler import MAX_CANDIDATES
from jax_engine.sampling.sampling_inputs import sampling_row, unpack_sampling
from reference import sampling as oracle
from reference.parameters import FILTERS
from reference.random_numbers import uniform
from tests.sampling.forms import each_form, sample_by

ROWS = 4
VOCABS = (5, 300, 1000)  # below and above the number of candidates of the partial sort
NUM_BIAS, NUM_HISTORY = 32, 128
EOS = 3


@functools.partial(jax.jit, static_argnames="form")
def _sample(logits, rows, position, bias, history, allowed, form):
    inputs = unpack_sampling(rows, position, bias, history)
    return sample_by(form, logits, inputs, allowed=allowed)


@st.composite
def requests(draw, vocab: int):
    """One row: its parameters, its prompt and its output so far."""
    tokens = st.lists(st.integers(0, vocab - 1), max_size=6)
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.3, 1.0, 2.5])),
        top_n_sigma=draw(st.sampled_from([0.0, 0.0, 0.01, 0.7, 1.5, 2.5, 40.0])),
        top_k=draw(st.sampled_from([-1, 0, 1, 2, 5, 280, 2000])),
        top_p=draw(st.sampled_from([1.0, 0.95, 0.5, 0.1, 1e-6])),
        min_p=draw(st.sampled_from([0.0, 0.05, 0.6, 1.0])),
        presence_penalty=draw(st.sampled_from([0.0, 0.0, 1.5, -2.0])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.0, 0.7, -1.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.3, 0.5])),
        logit_bias=draw(st.none() | st.just({0: 50.0, vocab - 1: -100.0})),
        min_tokens=draw(st.integers(0, 3)),
        max_tokens=100,
        stop_token_ids=draw(st.sampled_from([[], [0]])),
        allowed_token_ids=draw(st.none() | tokens.map(lambda ids: [1, *ids])),
        seed=draw(st.integers(0, 2**63)),
    )
    return params, draw(tokens.filter(len)), draw(tokens)


def _sparse(batch):
    bias, history = [], []
    for row, (params, prompt, output) in enumerate(batch):
        bias += [(row, token, value) for token, value in (params.logit_bias or {}).items()]
        if len(output) < params.min_tokens:
            bias += [(row, token, -np.inf) for token in {EOS, *params.stop_token_ids}]
        history += [(row, token, 0) for token in prompt] + [(row, token, 1) for token in output]
    packed_bias = np.full((3, NUM_BIAS), ROWS, np.int32)
    for i, (row, token, value) in enumerate(bias):
        packed_bias[:, i] = row, token, np.float32(value).view(np.int32)
    packed_history = np.full((3, NUM_HISTORY), ROWS, np.int32)
    for i, entry in enumerate(history):
        packed_history[:, i] = entry
    return packed_bias, packed_history


def _run(logits, batch, form="kernel"):
    rows = np.stack([sampling_row(params, params.seed or 0) for params, _, _ in batch])
    position = np.array([len(p) + len(o) for _, p, o in batch], np.int32)
    vocab = logits.shape[1]
    allowed = [params.allowed_token_ids or range(vocab) for params, _, _ in batch]
    mask = np.stack([token_bits(ids, vocab) for ids in allowed])
    return _sample(logits, rows, position, *_sparse(batch), mask, form)


@each_form
@given(data=st.data(), vocab=st.sampled_from(VOCABS), scale=st.sampled_from([0.1, 2.0, 8.0]))
def test_i49_any_mixture_of_requests_samples_as_the_reference_does(
    form, data, vocab, scale
) -> None:
    """I49: the same token as the oracle's, row by row."""
    batch = data.draw(st.lists(requests(vocab), min_size=ROWS, max_size=ROWS))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    logits = (rng.standard_normal((ROWS, vocab)) * scale).astype(np.float32)
    tokens = np.asarray(_run(logits, batch, form).token_ids)
    for row, (params, prompt, output) in enumerate(batch):
        u = uniform(params.seed, len(prompt) + len(output))
        near = set()
        # float32 sums may fall on the other side of an edge that a filter or u all but hits.
        top_ps = {max(params.top_p * (1 - 1e-5), 1e-9), min(params.top_p * (1 + 1e-5), 1.0)}
        sigmas = {params.top_n_sigma * (1 + change) for change in (-1e-5, 1e-5)}
        for top_p, top_n_sigma in itertools.product(top_ps, sigmas):
            wanted = oracle.distribution(
                logits[row],
                dataclasses.replace(params, top_p=top_p, top_n_sigma=top_n_sigma),
                prompt_token_ids=prompt,
                output_token_ids=output,
                eos_token_ids=[EOS],
            )
            assert wanted.sum() == pytest.approx(1.0)
            near |= {oracle.draw(wanted, float(np.clip(u + d, 0, 1 - 1e-9))) for d in (-2e-5, 2e-5)}
        assert tokens[row] in near


@given(data=st.data(), vocab=st.sampled_from(VOCABS))
def test_i49_the_support_is_exactly_the_reference_s(data, vocab) -> None:
    """I49: support within all filters; the boundary token and the argmax stay."""
    levels = data.draw(st.sampled_from([3, 20, 10_000]))  # few levels: many ties
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    logits = (rng.integers(0, levels, (1, vocab)) * (6.0 / levels)).astype(np.float32)
    k = data.draw(st.sampled_from([0, 1, 2, 5, 260, vocab]))
    p = data.draw(st.sampled_from([1.0, 0.9995, 0.99, 0.8, 0.31, 0.001]))
    min_p = data.draw(st.sampled_from([0.0, 0.013, 0.4]))
    n = data.draw(st.sampled_from([0.0, 0.0, 0.7, 1.3, 2.2, 50.0]))
    params = SamplingParams(top_n_sigma=n, top_k=k, top_p=p, min_p=min_p)
    wanted = oracle.distribution(logits[0], params)
    kept = oracle.distribution(logits[0], SamplingParams(top_n_sigma=n, top_k=k))
    mass = np.cumsum(np.sort(kept)[::-1])
    border = logits.max() - n * logits.std(dtype=np.float64)
    assume(np.abs(mass - p).min() > 1e-5 or p == 1.0)  # rounding decides there
    assume(np.abs(logits[logits < logits.max()] - border).min(initial=1) > 1e-4)
    lowest = _lowest(logits, np.float32([n]), np.array([k]), np.float32([p]))
    keep = np.asarray(_weights(logits, lowest, np.float32([min_p]))[0]) > 0
    assert np.array_equal(keep, wanted > 0)
    assert keep[np.argmax(logits[0])]


_lowest = jax.jit(lowest_kept)
_weights = jax.jit(
    lambda logits, lowest, min_p: token_weights(logits, logits.max(axis=1), lowest, min_p)
)


_uniforms = jax.jit(uniforms)
words = st.integers(0, 2**32 - 1)


@given(drawn=st.lists(st.tuples(words, words, st.integers(0, 2**31 - 1)), min_size=8, max_size=8))
def test_i49_uniform_numbers_are_the_reference_s(drawn) -> None:
    """I37, I49: to the last bit, for each seed of 64 bits and each position."""
    rows = np.array(drawn, np.uint32)
    found = np.asarray(_uniforms(rows[:, :2], rows[:, 2].astype(np.int32)))
    assert found.tolist() == [uniform(high << 32 | low, at) for high, low, at in drawn]


@pytest.mark.parametrize("vocab", [200, 1000])  # below and above what the partial sort finds
def test_i49_each_row_of_a_batch_keeps_its_own_top_k_and_top_p(vocab) -> None:
    """Logits that are all different, so that what stays can be counted."""
    settings = [(k, p) for k in (0, 1, 5, 199, 255, 256, 257, 700, 2000) for p in (1.0, 0.9, 0.5)]
    rng = np.random.default_rng(0)
    logits = rng.permuted(np.tile(np.linspace(-2, 2, vocab), (len(settings), 1)), axis=1)
    top_k, top_p = (np.array(values) for values in zip(*settings, strict=True))
    sigmas = jnp.zeros(len(settings))
    lowest = lowest_kept(jnp.float32(logits), sigmas, jnp.int32(top_k), jnp.float32(top_p))
    for row, (k, p) in enumerate(settings):
        falling = np.sort(logits[row])[::-1][: k or vocab]
        mass = np.cumsum(np.exp(falling)) / np.exp(falling).sum()
        wanted = int(np.argmax(mass >= p - 1e-9)) + 1
        kept, rounding = np.sum(np.float32(logits[row]) >= lowest[row]), p < 1 and wanted > 20
        assert abs(kept - wanted) <= rounding, (k, p)


@pytest.mark.parametrize("mean", [0.0, 3000.0])
def test_i49_each_row_of_a_batch_has_its_own_top_n_sigma(mean) -> None:
    """1000 logits in steps of 1/128, wherever they lie, of which 100 are forbidden."""
    numbers = itertools.product((0.0, 0.5, 1.5, 2.9, 50.0), (0, 5, 300), (1.0, 0.47))
    settings = [SamplingParams(top_n_sigma=n, top_k=k, top_p=p) for n, k, p in numbers]
    logits = np.random.default_rng(0).permutation(1000).astype(np.float32) / 128 + mean
    logits[:100] = -np.inf
    sigmas, top_ps = ([getattr(one, name) for one in settings] for name in ("top_n_sigma", "top_p"))
    top_ks = np.array([one.top_k for one in settings])
    rows = np.tile(logits, (len(settings), 1))
    lowest = np.asarray(_lowest(rows, np.float32(sigmas), top_ks, np.float32(top_ps)))
    for row, params in enumerate(settings):
        wanted = oracle.distribution(logits, params) > 0
        possible = logits > -np.inf
        assert np.array_equal((logits >= lowest[row]) & possible, wanted), params


def test_i49_a_number_on_the_border_of_two_tokens_draws_the_second() -> None:
    """The 1024 tokens are equally probable, so that sums are exact."""
    num_tokens = 1024
    logits, ones = jnp.zeros((num_tokens, num_tokens)), jnp.ones(num_tokens)
    u = jnp.arange(num_tokens, dtype=jnp.float32) / num_tokens
    parts = inverse_cdf(logits, -jnp.inf * ones, 0 * ones, u)
    all_of_them = jnp.zeros(num_tokens, jnp.int32)
    kernel = draw_on_cpu(logits, ones, 0 * ones, all_of_them, ones, 0 * ones, u)
    for tokens in (parts, kernel):
        assert np.array_equal(tokens, np.arange(num_tokens))


def test_i49_a_number_on_the_border_of_two_groups_draws_what_may_be_drawn() -> None:
    """Rounding may leave all sums of a group below it: then the group's last possible token."""
    row = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float32)
    row[:3, 100:] = -50.0  # too small for min_p
    weights = np.where(np.exp(row - row.max()) >= 0.01, np.exp(row - row.max()), 0)
    sums = np.cumsum(weights.sum(axis=1), dtype=np.float32)
    possible = np.flatnonzero(weights)
    for group in range(7):
        u = sums[group] / sums[-1] * (1 + np.arange(-40, 40, dtype=np.float32) * 2.0**-24)
        many = jnp.ones(len(u))
        logits = jnp.tile(row.reshape(-1), (len(u), 1))
        tokens = inverse_cdf(logits, -jnp.inf * many, 0.01 * many, jnp.asarray(u))
        border = np.searchsorted(possible, 128 * (group + 1))
        assert set(np.asarray(tokens)) == set(possible[border - 1 : border + 1])


@pytest.mark.slow
def test_i49_frequencies_are_the_distribution_s() -> None:
    """I49: chi-square over a large draw, each draw with a position of its own."""
    vocab, draws = 9, 4096
    weights = np.arange(1.0, vocab + 1)
    u = uniforms(
        jnp.tile(jnp.array([[1, 2]], jnp.uint32), (draws, 1)), jnp.arange(draws, dtype=jnp.int32)
    )
    logits = jnp.tile(jnp.log(jnp.float32(weights)), (draws, 1))
    lowest, min_p = jnp.full(draws, -jnp.inf), jnp.zeros(draws)
    tokens = np.asarray(inverse_cdf(logits, lowest, min_p, u))
    counts = np.bincount(tokens, minlength=vocab)
    expected = draws * weights / weights.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 26.1  # 99.9 % of chi-square with 8 degrees


@each_form
def test_a_row_draws_the_same_whoever_shares_its_batch(form: str) -> None:
    """I36, for the sampler: on the same shapes, neighbours change nothing."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((ROWS, 300)).astype(np.float32)
    mine = (SamplingParams(temperature=1.0, top_p=0.9, seed=7), [1, 2], [3])
    others = [(SamplingParams(temperature=0.0), [1], []), (SamplingParams(seed=1), [1], [])]
    alone = _run(logits, [mine, others[0], others[0], others[0]], form).token_ids[0]
    in_company = _run(logits, [mine, others[1], others[0], others[1]], form).token_ids[0]
    assert alone == in_company


def test_without_a_request_for_them_no_log_probabilities_are_computed() -> None:
    logits = np.random.default_rng(1).standard_normal((ROWS, 300)).astype(np.float32)
    asked = SamplingParams(seed=3, logprobs=1)
    for params, some in [(SamplingParams(seed=3), False), (asked, True)]:
        out = _run(logits, [(SamplingParams(seed=2), [1], []), *[(params, [1], [])] * (ROWS - 1)])
        for found in (out.logprobs, out.ranks, out.top_logprobs):
            assert np.asarray(found).any() == some


def test_a_penalty_of_the_last_row_alone_counts_in_a_small_vocabulary() -> None:
    logits = np.float32([[1.0, 0.9]] * ROWS)
    plain = SamplingParams(temperature=0.0)
    penalised = SamplingParams(temperature=0.0, frequency_penalty=1.0)
    batch = [(plain, [0], [])] * (ROWS - 1) + [(penalised, [0], [0])]
    rows = np.stack([sampling_row(params, 0) for params, _, _ in batch])
    entries = np.array([[ROWS - 1], [0], [1]], np.int32)
    bias, allowed = np.zeros((3, 0), np.int32), np.full((ROWS, 1), 3, np.uint32)
    position = np.ones(ROWS, np.int32)
    out = _sample(logits, rows, position, bias, entries, allowed, "parts")
    assert out.token_ids.tolist() == [0] * (ROWS - 1) + [1]


def test_logprobs_are_of_the_raw_logits_with_ranks() -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((ROWS, 300)).astype(np.float32)
    params = SamplingParams(temperature=0.5, logprobs=3, logit_bias={7: 100.0}, seed=3)
    out = _run(logits, [(params, [1], [])] * ROWS)
    for row in range(ROWS):
        wanted = oracle.log_softmax(logits[row])
        assert out.token_ids[row] == 7  # the bias decides, and is not in the log-probability
        assert out.logprobs[row] == pytest.approx(wanted[7], abs=1e-5)
        assert out.ranks[row] == 1 + (logits[row] > logits[row][7]).sum()
        best = np.argsort(-logits[row])[:MAX_CANDIDATES]
        assert np.array_equal(out.top_token_ids[row], best)
        np.testing.assert_allclose(out.top_logprobs[row], wanted[best], atol=1e-5)


@given(data=st.data(), vocab=st.sampled_from(VOCABS))
def test_a_beam_s_candidates_are_of_the_edited_and_tempered_logits(data, vocab) -> None:
    """Beside rows that want others, or none: the best of the distribution that is sampled from."""
    drawn = data.draw(st.lists(requests(vocab), min_size=ROWS, max_size=ROWS))
    kinds = data.draw(st.lists(st.sampled_from(["beams", "raw", "none"]), min_size=4, max_size=4))
    changes = {
        "beams": {"use_beam_search": True} | {name: off[0] for name, off in FILTERS.items()},
        "raw": {"logprobs": 0},
        "none": {},
    }
    batch = [
        (dataclasses.replace(params, **changes[kind]), prompt, output)
        for (params, prompt, output), kind in zip(drawn, kinds, strict=True)
    ]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    logits = (rng.standard_normal((ROWS, vocab)) * 3).astype(np.float32)
    out = _run(logits, batch)
    for row, (kind, (params, prompt, output)) in enumerate(zip(kinds, batch, strict=True)):
        if kind == "none":
            continue
        wanted = logits[row].astype(np.float64)
        if kind == "beams":
            tempered = dataclasses.replace(params, temperature=params.temperature or 1.0)
            with np.errstate(divide="ignore"):
                wanted = np.log(oracle.distribution(
                    logits[row], tempered, prompt_token_ids=prompt, output_token_ids=output,
                    eos_token_ids=[EOS],
                ))  # fmt: skip
        wanted = oracle.log_softmax(wanted)
        best = np.sort(wanted)[::-1][:MAX_CANDIDATES]
        possible = best > -60  # float32 has none of the others
        found = np.asarray(out.top_logprobs[row])
        np.testing.assert_allclose(found[possible], best[possible], atol=2e-4)
        tokens = np.asarray(out.top_token_ids[row])[possible]
        np.testing.assert_allclose(wanted[tokens], best[possible], atol=2e-4)


@each_form
def test_forbidden_tokens_are_never_drawn_even_as_the_only_ones_left_of_top_k(form: str) -> None:
    logits = np.zeros((ROWS, 5), np.float32)
    logits[:, EOS] = 30.0
    params = SamplingParams(top_k=1, min_tokens=2, seed=0)
    tokens = np.asarray(_run(logits, [(params, [1], [])] * ROWS, form).token_ids)
    assert EOS not in tokens


@given(
    st.integers(1, 4),
    st.one_of(st.integers(1, 3 * GROUP), st.sampled_from([GROUP, 2 * GROUP, 5000])),
    st.integers(0, 2**31),
)
def test_the_most_probable_token_is_the_first_of_the_largest(rows, vocab, seed):
    """Few different values, so that many are equal; some are minus infinity, or all."""
    logits = np.random.default_rng(seed).integers(-2, 2, (rows, vocab)).astype(np.float32)
    logits[logits == -2] = -np.inf
    found = jax.jit(most_probable)(logits)
    np.testing.assert_array_equal(found, np.argmax(logits, axis=1))


@each_form
def test_i49_a_top_p_just_below_1_filters(form) -> None:
    """I49: what is beyond 99.91 % never comes, in draws of which some would be of it."""
    draws = 16_384
    logits = np.tile(np.log(np.float32([0.9992, 0.0002, 0.0002, 0.0002, 0.0002])), (draws, 1))
    nothing, mask = np.full((3, 1), draws, np.int32), np.tile(token_bits(range(5), 5), (draws, 1))

    def tokens(top_p: float) -> np.ndarray:
        rows = np.tile(sampling_row(SamplingParams(top_p=top_p), 7), (draws, 1))
        position = np.arange(draws, dtype=np.int32)
        return np.asarray(_sample(logits, rows, position, nothing, nothing, mask, form).token_ids)

    assert tokens(1.0).any() and tokens(0.9994).any() and not tokens(0.9991).any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 2**32 + 7, 2**63 + 7])
def test_all_bits_of_a_seed_count(seed) -> None:
    """The upper ones as well: the number drawn with is the oracle's."""
    nothing = np.full((3, 1), 1, np.int32)
    rows, position = jnp.asarray(sampling_row(SamplingParams(), seed)[None]), jnp.array([5])
    inputs = unpack_sampling(rows, position, jnp.asarray(nothing), jnp.asarray(nothing))
    assert float(uniforms(inputs.seed, position)[0]) == pytest.approx(uniform(seed, 5))
