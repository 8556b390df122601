"""The engine as on a GPU, where the host decides which parts of the sampler run, on a CPU.

I30 to I37 with a sampler that is a program of its own: for each mixture of requests the host must
ask for all that any of them needs.
"""

from typing import Any

from hypothesis import example, given, settings

from tests.properties.test_engine_against_reference import FEW_TOKENS, FOUND_AGAIN, run_both
from tests.support.builders import Pool
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import scheduler_settings, workloads

POOL = Pool(4, 14, branches_wait=True)


@example(scheduler=FEW_TOKENS, workload=FOUND_AGAIN)  # some tokens are drawn for certain
@given(scheduler=scheduler_settings(), workload=workloads())
@settings(max_examples=min(10, settings.default.max_examples))
def test_i30_to_i37_where_the_host_decides(
    scheduler: dict[str, Any], workload: list[Request]
) -> None:
    pair = run_both(POOL, scheduler, workload)
    worker = pair.engine.llm_engine.worker
    assert worker.steps.sample.branches_wait and len(worker.steps.sample.programs) > 0
