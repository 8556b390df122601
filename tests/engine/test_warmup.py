"""After a warm-up no workload without logit edits compiles anything."""

import jax
import numpy as np
import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.worker.step_shape import all_step_shapes
from tests.support.drafters import speculation
from tests.support.tiny_llama import VOCAB

LIMITS = {"max_num_seqs": 5, "max_num_batched_tokens": 33}
SETTINGS = {
    "skip_tokenizer_init": True, "block_size": 4, "max_model_len": 40,
    "num_gpu_blocks_override": 16, "preemption_mode": "swap",
}  # fmt: skip
COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compilations():
    """Names of what JAX compiled since the test began."""
    found = []

    def listen(event, duration, **more):
        if event == COMPILED:
            found.append(more.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
def test_nothing_is_compiled_after_a_warm_up(tiny, compilations) -> None:
    """Prompts of all lengths, arriving at all times, greedy, drawn, forked, with and without
    log-probabilities, in a pool so small that groups are swapped."""
    llm = LLM(tiny, warmup=True, **SETTINGS, **LIMITS)
    engine = llm.llm_engine
    expected = len(all_step_shapes(33, 5))
    assert len(engine.worker.steps._compiled) == expected
    assert compilations.count("jit(step)") == expected
    assert engine.warmup() == 0
    compilations.clear()
    rng = np.random.default_rng(0)
    added, finished = 0, 0
    while added < 60 or engine.has_unfinished_requests():
        if added < 60 and rng.random() < 0.4:
            n = int(rng.choice([1, 1, 3]))
            params = SamplingParams(
                n=n, temperature=float(n > 1 or rng.random() < 0.5), top_p=0.9, logprobs=2,
                max_tokens=int(rng.integers(1, 20 // n)), ignore_eos=True,
            )  # fmt: skip
            prompt = rng.integers(3, VOCAB, int(rng.integers(1, 20 // n))).tolist()
            engine.add_request(str(added), {"prompt_token_ids": prompt}, params)
            added += 1
        finished += sum(output.finished for output in engine.step())
    assert finished == 60
    assert engine.scheduler.num_preemptions["swap"] > 0
    assert compilations == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_seqs", "budget", "most", "rows"),
    [(1, 33, 20, 21), (2, 33, 3, 8), (5, 33, 20, 32), (4, 16, 20, 16)],
)
def test_nothing_is_compiled_after_a_warm_up_for_guesses(
    tiny, compilations, num_seqs: int, budget: int, most: int, rows: int
) -> None:
    """Each guess is a row of its own, as far as there are rows; also beside chunks of prompts."""
    rng = np.random.default_rng(0)
    config = speculation(lambda _: rng.integers(3, VOCAB, rng.integers(0, 21)).tolist(), most=most)
    settings = SETTINGS | {"max_num_seqs": num_seqs, "max_num_batched_tokens": budget}
    settings |= {"num_gpu_blocks_override": 60, "long_prefill_token_threshold": 6}
    llm = LLM(tiny, warmup=True, speculative_config=config, **settings)
    engine = llm.llm_engine
    assert set(engine.worker.steps.compiled_shapes()) == set(all_step_shapes(budget, rows))
    compilations.clear()
    params = SamplingParams(temperature=0.8, top_p=0.9, logprobs=2, max_tokens=18, ignore_eos=True)
    prompts = [rng.integers(3, VOCAB, rng.integers(1, 20)).tolist() for _ in range(20)]
    outputs = llm.generate([{"prompt_token_ids": one} for one in prompts], params, use_tqdm=False)
    assert sum(output.metrics.num_draft_tokens for output in outputs) > 100
    assert compilations == []


@pytest.mark.slow
def test_without_a_warm_up_steps_are_compiled_when_needed(tiny, compilations) -> None:
    """The first step is the exception: it is compiled while the weights are read."""
    llm = LLM(tiny, **SETTINGS, **LIMITS)
    assert compilations.count("jit(step)") == 1
    llm.generate([[5, 6]], SamplingParams(temperature=0.0, max_tokens=2), use_tqdm=False)
    assert compilations.count("jit(step)") == 2


def test_there_is_nothing_to_warm_up_where_nothing_is_compiled(tiny, compilations) -> None:
    llm = LLM(tiny, warmup=True, enforce_eager=True, **SETTINGS, **LIMITS)
    assert llm.llm_engine.warmup() == 0
    assert "jit(step)" not in compilations


@pytest.mark.slow
def test_guesses_beside_a_chunk_fit_the_rows_of_the_largest_step(tiny) -> None:
    """A chunk draws nothing and takes a row: 15 guesses, their row and its own are one too many."""
    settings = SETTINGS | {"num_gpu_blocks_override": 40, "long_prefill_token_threshold": 4}
    config = speculation(lambda tokens: [5] * 20, most=20)
    llm = LLM(
        tiny, max_num_seqs=4, max_num_batched_tokens=32, speculative_config=config, **settings
    )
    engine = llm.llm_engine
    assert engine.worker.capabilities.max_samples == 16
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    engine.add_request("short", {"prompt_token_ids": [3, 4]}, params)
    engine.step()
    engine.add_request("long", {"prompt_token_ids": [3, 4] * 10}, params)
    outputs = []
    while engine.has_unfinished_requests():
        outputs += [output for output in engine.step() if output.finished]
    assert len(outputs) == 2 and all(one.metrics.num_draft_tokens for one in outputs)
