"""Shapes in the oracle's annotations are checked at every call, where its own tests begin a run.

Elsewhere the oracle computes each step of each property, thousands of small arrays: the checks took
longer than the arrays. What it computes there is compared with the engine anyway.
"""

import sys

from tests.conftest import check_shapes

ORACLE = [
    f"reference.{name}"
    for name in (
        *("attention", "batch", "kv_cache", "logits"),
        *("quantization", "rope", "sampling", "transformer"),
    )
]
# A module that other tests have imported stays as it is.
ORACLE_IS_CHECKED = sys.modules.keys().isdisjoint(ORACLE) and check_shapes(ORACLE)
