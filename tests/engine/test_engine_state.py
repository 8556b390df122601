"""What `LLMEngine.state` counts, beside what the requests got."""

from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine import SamplingParams
from jax_engine.engine import engine_state
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


def request(
    prompt_len: int, computed: list[int], *, first: float | None, generated: int, beams: bool
) -> Any:
    """A stand-in for a request.

    Args:
        computed: Tokens of each unfinished sequence.
        first: When its first token came; None: not yet.
        beams: Whether its tokens are counted at its end only.
    """
    seqs = [SimpleNamespace(num_computed_tokens=one) for one in computed]
    return SimpleNamespace(
        group=SimpleNamespace(prompt_len=prompt_len, unfinished=lambda: seqs),
        metrics=SimpleNamespace(first_token_time=first),
        results=SimpleNamespace(counts_samples=not beams, num_generated=generated),
    )


def test_what_no_total_has_yet_is_counted_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts until their first token came, and the tokens of beams until their search ends."""
    monkeypatch.setattr(engine_state, "block_map", lambda scheduler: "a map")
    scheduler: Any = SimpleNamespace(num_preemptions={"recompute": 3, "swap": 4})
    requests = {
        "in its prompt": request(12, [5], first=None, generated=0, beams=False),
        "beyond it, and not read": request(6, [0, 7], first=None, generated=0, beams=False),
        "counted": request(9, [30], first=1.0, generated=21, beams=False),
        "beams": request(4, [6, 5], first=2.0, generated=7, beams=True),
        "more beams": request(8, [8], first=None, generated=1, beams=True),
    }
    totals = {"prompt_tokens": 1000, "generation_tokens": 2000}
    running: Any = SimpleNamespace(
        requests=requests, recorder=SimpleNamespace(total=totals.__getitem__)
    )
    found = engine_state.engine_state(scheduler, running, 9.0)
    assert (found.prompt_tokens, found.generated_tokens) == (1000 + 5 + 6 + 8, 2000 + 7 + 1)
