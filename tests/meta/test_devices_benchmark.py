"""The benchmark of several devices: each way runs all of a workload, in turns."""

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import devices
from benchmarks.compare.workloads import WORKLOADS, Scale


class Answers:
    """As much of `LLM` as answers with as many tokens as are asked for."""

    def __init__(self, short: int = 0) -> None:
        self.short, self.calls = short, 0

    def generate(self, prompts: list[Any], params: list[Any], *, use_tqdm: bool) -> list[Any]:
        self.calls += 1
        counts = [one.max_tokens - self.short for one in params]
        assert len(prompts) == len(counts) and not use_tqdm
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1] * n)]) for n in counts]


def test_ways_take_turns_and_each_token_must_come() -> None:
    llms: Any = {way: Answers() for way in devices.WAYS}
    scale = Scale(vocab_size=100)
    found = devices.speeds(llms, "W1", 3, scale)
    assert {one.calls for one in llms.values()} == {4}
    assert set(found) == set(devices.WAYS) and found[devices.ALONE]["over_one_process"] == 1.0
    lengths = [job.output_len for job in WORKLOADS["W1"][1](scale, 0)]
    assert lengths == [job.output_len for job in WORKLOADS["W1"][1](scale, 5)]
    short: Any = Answers(short=1)
    with pytest.raises(AssertionError):
        devices.seconds(short, "W2", 0, scale)
