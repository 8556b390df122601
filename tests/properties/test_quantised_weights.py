"""The engine with quantised weights against the reference engine with what they stand for.

I30 to I37 with codes that the products decode: GPTQ in act-order, GGUF's blocks of several types in
one matrix, and W8A8, whose inputs are rounded, too. There a number between two codes may be rounded
to another one than the oracle's, so logits differ by more (`TOLERANCES`).
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from jax_engine.models.model_loader import load_model, open_model
from jax_engine.weights.panels import CodedPanels
from jax_engine.weights.w8a8 import W8A8Panels
from reference.transformer import Transformer
from tests.models.paged import PagedRun
from tests.properties.test_engine_against_reference import crowded, run_both
from tests.support.builders import Pool, model_pair
from tests.support.engine_pair import TOLERANCE, naive_logits
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import scheduler_settings, workloads
from tests.support.quantised_llama import RoundedInputs

POOLS = {name: Pool(3, 17, weights=name) for name in ("gptq", "gguf", "w8a8")}
each = pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)


@each
@given(scheduler=scheduler_settings(), workload=workloads())
@settings(max_examples=min(6, settings.default.max_examples))
def test_i30_to_i37_with_quantised_weights(
    pool: Pool, scheduler: dict[str, Any], workload: list[Request]
) -> None:
    """Any mode, chunks, order, company: prefixes are shared, beams and samples fork."""
    run_both(pool, scheduler, workload)


@each
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_i31_i33_preemption_changes_nothing(pool: Pool, mode: str) -> None:
    stats = crowded("unified", mode, pool=pool, budget=9)
    assert (stats.num_swapped_out if mode == "swap" else stats.num_recomputed) > 0


@each
def test_the_layers_hold_codes(pool: Pool) -> None:
    path, _ = model_pair(None, pool.weights)
    leaves = open_model(str(path)).leaves.values()
    formats = {type(one.format) for one in leaves if one.layers is not None and one.format}
    assert formats == {W8A8Panels if pool.weights == "w8a8" else CodedPanels}


def test_rounding_of_inputs_is_not_lost_in_the_tolerance() -> None:
    """Most sequences meet no number between two codes: there the logits are the oracle's."""
    path, oracle = model_pair(None, "w8a8")
    assert isinstance(oracle, RoundedInputs)
    plain, rng = Transformer(oracle.config, oracle.weights), np.random.default_rng(4)
    model = load_model(str(path))
    run = PagedRun(model.config, model.graphdef, model.params)
    differences = []
    for _ in range(9):
        tokens = rng.integers(3, oracle.config.vocab_size, size=26).tolist()
        found = np.asarray(run.reset().feed(tokens))[-1]
        others = (naive_logits(one, tokens) for one in (oracle, plain))
        differences.append([np.abs(found - other).max() for other in others])
    to_oracle, to_plain = np.median(differences, axis=0)
    assert to_oracle < TOLERANCE and to_plain > 100 * TOLERANCE
