"""A runner that only bytes reach, as in another process: the same for every kind of request."""

import numpy as np
import pytest

from jax_engine import LLM, PoolingParams, SamplingParams
from jax_engine.engine.startup import build
from jax_engine.outputs import PoolingRequestOutput
from jax_engine.sampling_params import StructuredOutputsParams
from jax_engine.worker.worker import Worker
from tests.support.in_process import check_idle, run
from tests.support.through_bytes import ThroughBytes

SETTINGS = {"block_size": 4, "max_model_len": 48, "max_num_seqs": 8, "max_logprobs": -1}
PROMPT = "A B C D"
KINDS = {
    "greedy": {"temperature": 0.0},
    "samples": {"n": 3, "seed": 1},
    "penalties": {"seed": 2, "frequency_penalty": 1.0, "repetition_penalty": 1.5},
    "edits": {"seed": 3, "logit_bias": {70: 5.0}, "min_tokens": 3},
    "log-probabilities": {"seed": 4, "logprobs": 3, "prompt_logprobs": 2},
    "whole rows": {"seed": 5, "logprobs": -1},
    "chosen tokens": {"seed": 6, "logprob_token_ids": [70, 71]},
    "beams": {"n": 2, "use_beam_search": True, "temperature": 0.0},
    "allowed": {"seed": 7, "allowed_token_ids": [70, 71, 72]},
    "bad words": {"seed": 8, "bad_words": ["AB", "C"]},
    "grammar": {"seed": 9, "structured_outputs": StructuredOutputsParams(regex="[A-F]{6}")},
    # A function that no bytes can carry: it stays where the engine is
    "processor": {"seed": 10, "logits_processors": [lambda output, logits: np.roll(logits, 1)]},
}


def outputs(llm: LLM) -> dict[str, object]:
    engine = llm.llm_engine
    for name, given in KINDS.items():
        engine.add_request(name, PROMPT, SamplingParams(**{"max_tokens": 6, **given}))
    engine.add_request("embedding", PROMPT, PoolingParams())
    engine.add_request("embedded tokens", PROMPT, PoolingParams(task="token_embed"))
    found: dict[str, object] = {}
    for one in run(engine):
        if isinstance(one, PoolingRequestOutput):
            found[one.request_id] = np.asarray(one.outputs.data).tolist()
        elif one.finished:
            found[one.request_id] = repr((one.outputs, one.prompt_logprobs))
    check_idle(engine)
    return found


@pytest.mark.slow
def test_a_worker_that_only_bytes_reach_gives_the_same(of_bytes, monkeypatch) -> None:
    wanted = outputs(LLM(of_bytes, num_gpu_blocks_override=120, **SETTINGS))
    assert set(wanted) == {*KINDS, "embedding", "embedded tokens"}
    monkeypatch.setattr(
        build, "Worker", lambda *given, **more: ThroughBytes(Worker(*given, **more))
    )
    llm = LLM(of_bytes, num_gpu_blocks_override=120, **SETTINGS)
    assert outputs(llm) == wanted
    assert llm.llm_engine.worker.num_bytes > 10_000
