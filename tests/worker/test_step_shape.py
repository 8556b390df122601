"""Every step fits its shape, and the shapes are few: counted, not sampled."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jax_engine import EngineConfig
from jax_engine.operations.device import DEVICES
from jax_engine.worker import step_shape as module
from jax_engine.worker.step_shape import (
    StepShape,
    all_step_shapes,
    largest_step_shape,
    step_shape,
    with_adapters,
)

DEFAULT = (EngineConfig().resolve_lengths(8192)[1], EngineConfig().max_num_seqs)

CPU, GPU = DEVICES
on_each_device = pytest.mark.parametrize("device", DEVICES, indirect=True, ids=["cpu", "gpu"])
with_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def device(request):
    """The device that steps are padded for."""
    with patch.object(module, "this_device", lambda: request.param):
        yield request.param


@st.composite
def steps(draw):
    """Limits, and tokens, sequences and samples of a step within them."""
    budget, most = draw(st.integers(1, 5000)), draw(st.integers(1, 1100))
    num_seqs = draw(st.integers(1, min(budget, most)))
    num_tokens = draw(st.integers(num_seqs, budget))
    return (budget, most), (num_tokens, num_seqs, draw(st.integers(0, most)))


@on_each_device
@with_fixture
@given(case=steps())
def test_every_step_fits_a_shape_that_was_listed(device, case) -> None:
    limits, (num_tokens, num_seqs, num_samples) = case
    shape = step_shape(num_tokens, num_seqs, num_samples)
    assert shape in all_step_shapes(*limits)
    assert shape.num_tokens >= num_tokens
    assert shape.num_rows >= max(num_seqs, num_samples)
    if shape.decode_only:
        assert num_tokens == num_seqs
        assert shape.num_tokens == shape.num_rows < 2 * num_seqs
    else:
        room = 1.5 if (device, shape.num_tokens, shape.num_rows) == (GPU, 384, 256) else 2
        assert shape.num_tokens >= room * shape.num_rows


@on_each_device
@with_fixture
@given(budget=st.integers(1, 20_000), most=st.integers(1, 1100))
@example(budget=129, most=129)  # decodes have more rows than the bucket of 384 tokens
def test_no_shape_is_larger_than_the_largest(device, budget: int, most: int) -> None:
    largest = largest_step_shape(budget, most)
    for shape in all_step_shapes(budget, most):
        assert shape.num_tokens <= largest.num_tokens
        assert shape.num_rows <= largest.num_rows


@on_each_device
@with_fixture
@given(data=st.data(), budget=st.integers(1, 5000), most=st.integers(1, 1100))
def test_guesses_fit_the_rows_of_the_largest(device, data, budget: int, most: int) -> None:
    """There are as many as a step can draw tokens. Its rows keep the tokens of each step."""
    rows = largest_step_shape(budget, most).num_rows
    with_guesses = data.draw(st.integers(1, min(rows, budget)))
    num_tokens = data.draw(st.sampled_from([with_guesses, budget]))
    shape = step_shape(num_tokens, with_guesses, with_guesses)
    assert with_guesses <= shape.num_rows <= rows


@on_each_device
@pytest.mark.parametrize(
    "limits", [(1, 1), (2, 1), (5, 9), (9, 70), (90, 40), (70, 256), (400, 3), (700, 1)]
)
def test_the_list_is_what_all_possible_steps_give(device, limits) -> None:
    """No more and no less. Two samples stand for any number between one and all."""
    budget, most = limits
    met = {
        step_shape(tokens, seqs, samples)
        for tokens in range(1, budget + 1)
        for seqs in range(1, min(tokens, most) + 1)
        for samples in (range(most + 1) if seqs == 1 else {0, min(2, most), most})
    }
    found = all_step_shapes(*limits)
    assert set(found) == met
    assert len(found) == len(met)


@pytest.mark.parametrize("device", [GPU], indirect=True, ids=["gpu"])
def test_shapes_of_a_gpu_by_hand(device) -> None:
    """The same up to 256 tokens, and in decode steps; then a little more than the step has."""
    assert step_shape(65, 65, 65) == StepShape(128, 128, decode_only=True)
    assert step_shape(129, 1, 1) == step_shape(256, 2, 1) == StepShape(256, 128)
    assert step_shape(150, 128, 1) == step_shape(200, 1, 128) == StepShape(256, 128)
    assert step_shape(257, 1, 1) == step_shape(384, 192, 1) == StepShape(384, 256)
    assert step_shape(200, 129, 1) == step_shape(2, 1, 256) == StepShape(384, 256)
    assert step_shape(385, 1, 1) == step_shape(512, 256, 1) == StepShape(512, 256)
    assert step_shape(555, 256, 256) == StepShape(640, 256)
    assert step_shape(1921, 1, 1) == step_shape(2048, 1, 1) == StepShape(2048, 256)
    assert step_shape(2049, 1, 1) == StepShape(2304, 256)
    assert step_shape(7681, 1, 1) == StepShape(8192, 256)
    assert step_shape(8193, 1, 1) == StepShape(16384, 256)
    assert step_shape(300, 257, 257) == step_shape(1024, 257, 0) == StepShape(1024, 512)
    assert step_shape(1025, 257, 0) == StepShape(1152, 512)
    found = [s.num_tokens for s in all_step_shapes(1300, 1) if not s.decode_only]
    assert found == [32, 64, 128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408]


@on_each_device
def test_buckets_hold_what_is_in_them_and_only_grow(device) -> None:
    """Counted for one sequence: no larger step has a smaller bucket, and few tokens are padding."""
    padded = [step_shape(tokens, 1, 1).num_tokens for tokens in range(2, 20_000)]
    assert padded == sorted(padded)
    assert {step_shape(tokens, 1, 1).num_tokens for tokens in padded} == set(padded)
    for tokens, room in enumerate(padded, 2):
        assert tokens <= room
        if device == GPU and 256 < tokens <= 8192:
            assert room - tokens < max(128, tokens / 8)


def test_shapes_by_hand() -> None:
    assert step_shape(1, 1, 1) == StepShape(1, 1, decode_only=True)
    assert step_shape(5, 5, 0) == StepShape(8, 8, decode_only=True)
    assert step_shape(65, 65, 65) == StepShape(128, 128, decode_only=True)
    assert step_shape(5, 5, 6) == step_shape(32, 1, 1) == StepShape(32, 16)
    assert step_shape(33, 1, 1) == step_shape(40, 32, 32) == StepShape(64, 32)
    assert step_shape(1025, 1, 1) == StepShape(2048, 256)
    assert step_shape(300, 257, 257) == step_shape(1024, 257, 0) == StepShape(1024, 512)


@pytest.mark.parametrize(
    ("rows", "held"), [(1, 8), (2, 8), (8, 8), (12, 16), (24, 24), (48, 48), (256, 256)]
)
def test_a_decode_step_with_adapters_has_whole_tiles_of_rows(rows: int, held: int) -> None:
    alone = step_shape(rows, rows, rows, 1, 1)
    found = with_adapters(alone)
    assert found == replace(alone, num_tokens=held, num_rows=held, lora=True)


@on_each_device
@with_fixture
@given(steps())
def test_steps_with_adapters_fit_the_rows_of_the_largest(device, case) -> None:
    limits, (num_tokens, num_seqs, num_samples) = case
    found = with_adapters(step_shape(num_tokens, num_seqs, min(num_samples, num_seqs)))
    assert found.num_rows <= largest_step_shape(*limits).num_rows


def test_a_step_with_prompts_and_adapters_has_the_shape_of_one_without() -> None:
    mixed = step_shape(100, 3, 3)
    assert with_adapters(mixed) == replace(mixed, lora=True)


def test_room_for_edits_by_hand() -> None:
    small, large = (256, 4096), (256 * 16, 4096 * 16)
    for edits, room in [
        ((1, 0), small), ((0, 1), small), (small, small), ((257, 0), large), ((0, 4097), large),
        (large, large), ((large[0] + 1, 0), (256**2, 4096 * 256)), ((0, 0), (0, 0)),
    ]:  # fmt: skip
        for tokens in (1, 2):
            shape = step_shape(tokens, 1, 1, *edits)
            assert (shape.num_bias, shape.num_history) == room


def test_small_shapes_come_first_and_those_of_decode_steps_before_all() -> None:
    found = all_step_shapes(70, 9)
    assert found == [
        *(StepShape(n, n, decode_only=True) for n in (1, 2, 4, 8, 12)),
        *(StepShape(n, n // 2) for n in (32, 64, 128)),
    ]


@on_each_device
def test_the_default_limits_have_20_shapes_and_10_more_on_a_gpu(device) -> None:
    assert DEFAULT == (2048, 256)
    assert len(all_step_shapes(*DEFAULT)) == (20 if device == CPU else 30)
    assert largest_step_shape(*DEFAULT).num_tokens == 2048


@given(steps(), st.integers(0, 10**6), st.integers(0, 10**6))
def test_edits_of_logits_add_few_shapes(case, num_bias: int, num_history: int) -> None:
    """Both kinds of entries or neither, in one of few sizes."""
    shape = step_shape(*case[1], num_bias, num_history)
    assert shape.num_bias >= num_bias and shape.num_history >= num_history
    assert (shape.num_bias, shape.num_history) in {
        (0, 0), (2**8, 2**12), (2**12, 2**16), (2**16, 2**20), (2**20, 2**24),
    }  # fmt: skip
    assert (shape.num_bias == 0) == (num_bias == num_history == 0)
