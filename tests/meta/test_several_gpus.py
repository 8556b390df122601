"""The roofline of steps on several GPUs, and what is read from compiled cases."""

from typing import Any

import pytest

from benchmarks import several_gpus
from benchmarks.gpu.engine.limits import Card, Work, step_work
from benchmarks.roofline import Exchanges, Link, Row, parts_of_step, predicted_seconds
from benchmarks.several_gpus import ASSUMPTIONS, exchanges_of, held_to_measured, predict, spec_of
from jax_engine.errors import ConfigError
from jax_engine.worker.aot_mesh_cases import SHARED_MODELS

DENSE, EXPERTS = spec_of("llama-3.1-8b"), spec_of("qwen3-30b-a3b-dealt")
CARD = Card(bytes_per_s=4e12, flops_per_s=700e12)
LINK = Link(latency_s=20e-6, bytes_per_s=450e9)


def step(size: int = 1, count: int = 1, card: Card = CARD, spec: Any = DENSE) -> float:
    """Seconds of a decode step, with two exchanges in each of 32 layers on several devices."""
    parts = parts_of_step(spec, size, [Row(1, 1024)] * count)
    said = Exchanges(64, 64 * count * 4096 * 4 * (size - 1)) if size > 1 else Exchanges()
    return sum(
        predicted_seconds(
            parts, card, kernels=500, kernel_s=2e-6, exchanges=[(said, LINK)]
        ).values()
    )


def test_on_one_device_it_counts_what_the_single_device_s_bound_counts() -> None:
    """The bytes and operations of `limits.step_work`, which knows one device only."""
    for rows in ([Row(1, 1024)], [Row(1, 300)] * 256, [Row(2048, 2048)], [Row(5, 9), Row(1, 7)]):
        parts = parts_of_step(DENSE, 1, rows).values()
        known = step_work(SHARED_MODELS["llama-3.1-8b"], [(row.new, row.length) for row in rows])
        assert sum(one.size for one in parts) == known.size
        assert sum(one.flops for one in parts) == known.flops


@pytest.mark.parametrize("spec", [DENSE, EXPERTS])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_devices_together_do_the_work_of_one(size: int, spec: Any) -> None:
    """But for routers, which each has, and KV heads that several of them have."""
    rows = [Row(1, 1024)] * 64
    one, each = parts_of_step(spec, 1, rows), parts_of_step(spec, size, rows)
    for name in one:
        assert one[name].size <= size * each[name].size <= 2 * one[name].size, name
        assert one[name].flops <= size * each[name].flops * (1 + 1e-9), name
    if spec is DENSE:
        assert size * each["products"].size == one["products"].size


def test_more_requests_take_longer_and_give_more_tokens() -> None:
    for size in (1, 2, 8):
        seconds = [step(size, count) for count in (1, 2, 16, 64, 256, 1024)]
        assert seconds == sorted(seconds)
        rates = [n / s for n, s in zip((1, 2, 16, 64, 256, 1024), seconds, strict=True)]
        assert rates == sorted(rates)


def test_faster_cards_and_links_never_take_longer() -> None:
    for count in (1, 256):
        assert step(2, count, Card(5e12, 700e12)) <= step(2, count)
        assert step(2, count, Card(4e12, 800e12)) <= step(2, count)
    said = Exchanges(64, 10**9)
    assert said.seconds(Link(8e-6, 450e9)) < said.seconds(LINK) < said.seconds(Link(20e-6, 3e11))


def test_a_step_is_the_sum_of_its_parts() -> None:
    found = predicted_seconds(
        {"read": Work(8 * 10**12, 1), "multiplied": Work(1, 7 * 10**14)},
        CARD,
        kernels=3,
        kernel_s=0.5,
        exchanges=[(Exchanges(2, 9 * 10**11), Link(0.25, 4.5e11))],
    )
    assert found == {"read": 2.0, "multiplied": 1.0, "kernels": 1.5, "exchanges": 2.5}


def test_few_tokens_read_few_experts() -> None:
    """One token of 8 of 128 experts, and as many as are touched by more of them."""
    sizes = [parts_of_step(EXPERTS, 1, [Row(1, 1)] * n)["products"].size for n in (1, 64, 4096)]
    expert = 2 * 48 * 3 * 2048 * 768
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] - sizes[0] == pytest.approx(120 * expert, rel=1e-6)


def test_a_size_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 3"):
        parts_of_step(DENSE, 3, [Row(1, 1)])


COMPILED: dict[str, Any] = {
    "starts": {"host": 47, "graphs": 33, "updates": 32, "kernels": 500},
    "collectives": {
        "all-gather": {"count": 1, "result_bytes": 8_000},
        "all-reduce": {"count": 1, "result_bytes": 4_000},
        "one-shot kernel": {"count": 64, "result_bytes": 64_000},
    },
}


def test_a_device_receives_all_but_its_own_part() -> None:
    assert exchanges_of(COMPILED, 4, one_shot=False) == Exchanges(2, 6_000 + 2 * 3_000)
    assert exchanges_of(COMPILED, 4, one_shot=True) == Exchanges(64, 48_000)


def test_each_kind_of_exchange_has_its_own_latency_and_is_no_kernel_besides() -> None:
    fast, slow = (predict(DENSE, 4, [Row(1, 9)], CARD, COMPILED, us) for us in (23.0, 33.0))
    assert fast["kernels_ms"] == pytest.approx((500 - 66) * ASSUMPTIONS["kernel_us"] / 1e3)
    assert slow["exchanges_ms"] - fast["exchanges_ms"] == pytest.approx(2 * 10e-3)
    ours = 64 * ASSUMPTIONS["one_shot_exchange_us"] / 1e3
    assert fast["exchanges_ms"] == pytest.approx(2 * 23e-3 + ours, abs=1e-3)
    assert fast["tokens_per_s"] == pytest.approx(1e3 / fast["step_ms"], rel=1e-3)


def test_a_new_run_keeps_the_cases_of_the_one_before() -> None:
    case = "mesh/llama-3.1-8b-x1/decode-1"
    old = {"compiled": {f"h200 {case}": COMPILED}, "predicted": {"gone": 1}}
    shared = "mesh/llama-3.1-8b-x4/decode-64"
    found = several_gpus.finished(Any, old, {"compiled": {f"h200 {shared}": COMPILED}})
    assert list(found["compiled"]) == [f"h200 {case}", f"h200 {shared}"]
    assert list(found["predicted"]) == [
        f"{one} {name}" for one in ("h100", "h200") for name in (case, shared)
    ]
    assert found["predicted"][f"h100 {shared}"]["compiled_for"] == "h200"
    assert set(found["one_gpu"]) == {"decode-1"} == set(held_to_measured(old["compiled"]))
    assert all(f"{name}_why" in ASSUMPTIONS for name in ("link", "kernel", "one_shot_exchange"))
