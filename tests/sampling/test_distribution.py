"""I49: what the sampler draws is distributed as the oracle says, by chi-square on large draws.

All settings at once, n samples of derived seeds, and these independent of each other. Seeds are
fixed: the same draws each time.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.engine.running_requests import derive_seed
from jax_engine.sampling.sampling_inputs import sampling_row, unpack_sampling
from reference import sampling as oracle
from tests.sampling.forms import each_form, sample_by
from tests.support.engine_pair import naive_logits
from tests.support.tiny_llama import VOCAB, tiny_llama

V, ROWS = 12, 2048
PROMPT, OUTPUT = [0, 3, 3, 7], [3, 5, 5, 9]
LOGITS = np.array([2.0, 1.5, 1.0, 2.5, 0.0, 1.8, -1.0, 0.7, 0.7, 2.2, -3.0, 1.2], np.float32)
PENALTIES = {"repetition_penalty": 1.4, "frequency_penalty": 0.4, "presence_penalty": -0.3}
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.6, "top_k": 6, "top_p": 0.9},
    {"temperature": 1.7, "top_p": 0.8, "min_p": 0.1},
    {"temperature": 0.9, "top_k": 5, "min_p": 0.2, **PENALTIES},
    {"temperature": 1.3, "top_k": 9, "top_p": 0.95, "min_p": 0.05, **PENALTIES},
    {"temperature": 3.0, "top_n_sigma": 1.0, "top_p": 0.8},
    {"temperature": 1.5, "top_n_sigma": 1.8, "top_k": 9, "min_p": 0.2, **PENALTIES},
    {"temperature": 2.0, "top_p": 0.7, "repetition_penalty": 0.6, "logit_bias": {6: 3.0, 3: -2.0}},
]


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """How far counts are from what is expected, in standard deviations (Wilson and Hilferty).

    Cells of which fewer than 5 are expected count as one.
    """
    expected = counts.sum() * probabilities.ravel()
    assert not counts.ravel()[expected == 0].any(), "a token outside of the support"
    few = expected < 5
    found = np.append(counts.ravel()[~few], counts.ravel()[few].sum())
    wanted = np.append(expected[~few], expected[few].sum())
    found, wanted = found[wanted > 0], wanted[wanted > 0]
    statistic, degrees = ((found - wanted) ** 2 / wanted).sum(), len(wanted) - 1
    spread = 2 / (9 * degrees)
    return float(((statistic / degrees) ** (1 / 3) - (1 - spread)) / spread**0.5)


@cache
def _sampler(form: str) -> Any:
    def draw(logits: Any, rows: Any, position: Any, bias: Any, history: Any) -> Any:
        inputs = unpack_sampling(rows, position, bias, history)
        return sample_by(form, logits, inputs).token_ids

    return jax.jit(draw)


def draws(form: str, params: SamplingParams) -> np.ndarray:
    """[n, draws]: what each sample of one request draws at one position after another."""
    n = params.num_samples
    rows = np.stack([sampling_row(params, derive_seed(params.seed or 0, i)) for i in range(n)])
    count = ROWS // n
    context = [(token, 0) for token in PROMPT] + [(token, 1) for token in OUTPUT]
    every = np.repeat(np.arange(ROWS), len(context))
    history = np.stack([every, *np.tile(np.array(context), (ROWS, 1)).T]).astype(np.int32)
    bias = np.full((3, 2 * ROWS), ROWS, np.int32)
    if params.logit_bias:
        tokens, values = zip(*params.logit_bias.items(), strict=True)
        bias[0] = np.repeat(np.arange(ROWS), 2)
        bias[1] = np.tile(tokens, ROWS)
        bias[2] = np.tile(np.float32(values).view(np.int32), ROWS)
    tokens = _sampler(form)(
        jnp.tile(LOGITS, (ROWS, 1)),
        np.repeat(rows, count, axis=0),
        np.tile(np.arange(count, dtype=np.int32), n),
        bias,
        history,
    )
    return np.asarray(tokens).reshape(n, count)


@each_form
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: "-".join(one))
def test_i49_draws_have_the_oracle_s_distribution(
    settings: dict[str, Any], n: int, form: str
) -> None:
    """Each of n samples has it, and any two of them are independent."""
    params = SamplingParams(n=n, seed=11, **settings)
    wanted = oracle.distribution(
        LOGITS.astype(np.float64), params, prompt_token_ids=PROMPT, output_token_ids=OUTPUT
    )
    assert 3 <= (wanted > 0).sum() <= V
    found = draws(form, params)
    for row in found:
        assert chi_square(np.bincount(row, minlength=V), wanted) < 4
    for i in range(n):
        for j in range(i):
            together = np.bincount(found[i] * V + found[j], minlength=V * V)
            assert chi_square(together, np.outer(wanted, wanted)) < 4


def test_the_test_notices_another_temperature() -> None:
    """That is what it can see: 1.0 drawn where 1.3 is said."""
    said = SamplingParams(temperature=1.3)
    wanted = oracle.distribution(LOGITS.astype(np.float64), said)
    [found] = draws("kernel", SamplingParams(temperature=1.0, seed=11))
    assert chi_square(np.bincount(found, minlength=V), wanted) > 4


@pytest.mark.slow
def test_i49_first_tokens_of_many_requests_have_the_model_s_distribution(tmp_path) -> None:
    """Through the whole engine: n samples of requests with seeds of their own."""
    path, transformer = tiny_llama(tmp_path / "tiny")
    llm = LLM(
        str(path), skip_tokenizer_init=True, block_size=8, num_gpu_blocks_override=200,
        max_model_len=16, max_num_seqs=64,
    )  # fmt: skip
    params = [
        SamplingParams(n=4, seed=seed, max_tokens=1, temperature=1.5, top_k=12, top_p=0.95)
        for seed in range(250)
    ]
    outputs = llm.generate([PROMPT] * len(params), params, use_tqdm=False)
    tokens = [one.token_ids[0] for output in outputs for one in output.outputs]
    wanted = oracle.distribution(
        naive_logits(transformer, PROMPT).astype(np.float64), params[0], prompt_token_ids=PROMPT
    )
    assert len(tokens) == 1000
    assert chi_square(np.bincount(tokens, minlength=VOCAB), wanted) < 4
