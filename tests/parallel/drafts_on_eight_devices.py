"""A draft model beside a target that devices share. Needs eight: see `test_several_devices.py`."""

from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.parallel.on_eight_devices import CROWD, SWAPS
from tests.properties.test_equal_bits import LARGE
from tests.properties.test_speculation import (
    check,
    check_blocks_are_free,
    suited_to_guesses,
    unified_settings,
)
from tests.support.builders import Pool, build_one
from tests.support.crowds import serve, serve_one_by_one
from tests.support.draft_models import draft_config
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import suited, workloads
from tests.support.in_process import InProcess

MANY = [replace(one, given=one.given | {"use_beam_search": False}) for one in CROWD]
TWO, EIGHT = Pool(3, 17, devices=2), Pool(8, 9, devices=8)


@settings(max_examples=settings.default.max_examples // 4)
@given(
    pool=st.sampled_from([TWO, EIGHT]), which=st.sampled_from(["itself", "other"]),
    sampling=st.sampled_from(["greedy", "probabilistic"]), accepts=st.booleans(),
    how=unified_settings(), workload=workloads(),
)  # fmt: skip
@example(TWO, "itself", "greedy", True, SWAPS, MANY)
@example(EIGHT, "other", "probabilistic", False, SWAPS | {"preemption_mode": "recompute"}, MANY)
def test_i53_a_draft_model_changes_no_bit_on_several_devices(
    pool: Pool,
    which: str,
    sampling: str,
    accepts: bool,
    how: dict[str, Any],
    workload: list[Request],
) -> None:
    """It is on the first device alone. Bits are those of the same devices without it."""
    plain = [suited(one, pool, how) for one in workload]
    asked = [suited_to_guesses(i, one) for i, one in enumerate(plain)]
    alone = serve_one_by_one(replace(LARGE, devices=pool.devices), asked)
    config = draft_config(3, draft_sample_method=sampling)
    drafting = replace(pool, draft=which, accepts_guesses=accepts)
    engine = build_one(drafting, speculation=config, **how)
    check(alone, serve(InProcess(engine), asked), asked)
    check_blocks_are_free(engine)
