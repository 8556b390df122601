"""What `LLMEngine.state` counts, beside what the requests got."""

from jax_engine import SamplingParams
from tests.support.builders import small_engine


def test_tokens_are_counted_while_they_come_and_stay_counted() -> None:
    engine = small_engine(max_num_batched_tokens=8)
    params = SamplingParams(n=2, max_tokens=6, seed=1, ignore_eos=True)
    engine.add_request("a", {"prompt_token_ids": [0, 1] * 6}, params)
    engine.add_request("b", {"prompt_token_ids": [1] * 5}, params)
    before, outputs = engine.state(), {}
    assert (before.prompt_tokens, before.generated_tokens) == (0, 0)
    assert before.map.num_waiting == 2
    while engine.has_unfinished_requests():
        outputs |= {one.request_id: one for one in engine.step() if one.finished}
        now = engine.state()
        assert before.prompt_tokens <= now.prompt_tokens <= 17
        assert before.generated_tokens <= now.generated_tokens <= 24
        assert now.prompt_tokens - before.prompt_tokens <= 8, "the step's budget"
        before = now
    generated = sum(len(one.token_ids) for out in outputs.values() for one in out.outputs)
    assert before.generated_tokens == generated == 24 and before.prompt_tokens == 17
    assert before.map.requests == [] and before.map.device.num_used == 0
    metrics = {one.name: one.value for one in engine.get_metrics() if hasattr(one, "value")}
    assert metrics["vllm:prompt_tokens"] == before.prompt_tokens
    assert metrics["vllm:generation_tokens"] == before.generated_tokens
