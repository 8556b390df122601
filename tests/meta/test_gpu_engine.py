"""The engine's measurements for GPUs in miniature, and their arithmetic by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.gpu.engine import drafting, peer
from benchmarks.gpu.engine.device_trace import ALL_PARTS, PRODUCT, UNKNOWN, by_part
from benchmarks.gpu.engine.expected import AIMS, EXPECTED
from benchmarks.gpu.engine.graphs import VARIANTS
from benchmarks.gpu.engine.limits import Card, step_work, weight_bytes
from benchmarks.gpu.engine.models import FULL, MODELS, SMOKE, build, write_config
from benchmarks.gpu.engine.table import RATIOS
from benchmarks.step_profile.trace import attribute
from jax_engine.models.checkpoints.checkpoint import read_hf_config
from jax_engine.operations import device
from jax_engine.speculation.draft_model import DraftModelDrafter
from jax_engine.worker import aot_cases
from tests.meta.trees import ROOT


@pytest.mark.parametrize("name", MODELS)
def test_the_shapes_are_those_that_are_compiled_ahead(name: str, tmp_path: Path) -> None:
    write_config(name, tmp_path, smoke=False)
    ours, theirs = read_hf_config(tmp_path), aot_cases.MODELS[name.lower()]
    assert ours.spec == theirs.spec


def test_the_limits_of_llama_8b_by_hand(tmp_path: Path) -> None:
    """docs/gpu.md has the same arithmetic."""
    write_config("Llama-3.1-8B", tmp_path, smoke=False)
    config = read_hf_config(tmp_path)
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    assert weight_bytes(config) == 2 * (32 * layer + 128256 * 4096)
    one = step_work(config, [(1, 100)])
    assert one.size == weight_bytes(config) + 100 * 2 * 32 * 8 * 128 * 2
    prompt = step_work(config, [(2048, 2048)])
    attention = 4 * 32 * 4096 * 2048 * 2049 // 2
    assert prompt.flops == 2 * 32 * layer * 2048 + 2 * 128256 * 4096 + attention
    assert step_work(config, [(1, 100)] * 2).flops == 2 * one.flops
    assert one.seconds(Card(1e12, 1e18)) == one.size / 1e12
    assert replace(one, size=0).seconds(Card(1e12, 1e9)) == one.flops / 1e9


@pytest.mark.parametrize("name", VARIANTS)
def test_xla_knows_the_options(name: str) -> None:
    """XLA refuses a name or a value that it does not know on every platform."""
    jitted = jax.jit(lambda x: x + 1, compiler_options=VARIANTS[name])
    assert jitted.lower(jnp.zeros(2)).compile()(jnp.zeros(2)).sum() == 2


def test_expectations_are_of_figures_that_are_measured() -> None:
    shown = {(part, key) for part, key, _ in RATIOS}
    assert {key[1:] for key in EXPECTED} == shown and set(AIMS) <= shown
    assert {key[0] for key in EXPECTED} == set(MODELS)


def test_the_page_says_what_is_expected() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text("utf-8")
    titles = {
        "decode": "decode, % of the bandwidth bound",
        "prefill": "prefill, % of the matrix rate",
        "throughput": "throughput at 256 running, % of the bound",
        "first token": "first token of a lone prompt, times its bound",
        "transformers": "tokens/s over transformers'",
    }
    for part, key, _ in RATIOS:
        numbers = " | ".join(str(EXPECTED[name, part, key]) for name in MODELS)
        assert f"| {titles[part]} | {numbers} |" in page


def test_a_gpus_kernels_go_to_the_parts_of_their_instructions() -> None:
    def kernel(name: str, begin: float, thread: int = 14, **details: str) -> dict[str, Any]:
        return {
            "ph": "X", "name": name, "ts": begin, "dur": 10.0, "pid": 1, "tid": thread,
            "args": details,
        }  # fmt: skip

    def label(kind: str, text: str, thread: int | None = None) -> dict[str, Any]:
        found = {"ph": "M", "name": kind, "pid": 1, "args": {"name": text}}
        return found if thread is None else found | {"tid": thread}

    events = [
        label("process_name", "/device:GPU:0 (0)"),
        label("thread_name", "Stream #14(Compute)", 14),
        label("thread_name", "XLA Ops", 20),
        kernel("nvjet_hsh_128x8", 0, hlo_op="cublas-gemm.1"),
        kernel("loop_fusion", 10, tf_op="jit(step)/while/body/norm/mul:"),
        kernel("nvjet_hsh_64x8", 30),  # 10 us after the one before; in a graph, nothing known
        kernel("memcpy", 40),
        kernel("cublas-gemm.1", 0, thread=20),  # the same once more, in another row
    ]
    spent, windows = attribute(
        by_part(events, {"cublas-gemm.1": "QKV"}), {part: part for part in ALL_PARTS}
    )
    assert windows == 1
    expected = {"QKV": 10, "norms and rotary": 10, PRODUCT: 10, UNKNOWN: 10, "dispatch": 10}
    assert {part: time for part, time in spent.items() if time} == expected


def test_a_peer_gets_the_requests_that_we_get() -> None:
    first, second = (peer.jobs("Llama-3.2-1B", smoke=False) for _ in range(2))
    assert first == second and len(first) == FULL.running
    assert json.loads(peer.message(first))["requests"][0]["prompt"] == first[0].prompt
    assert {job.arrival_s for job in first} == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize("accepts", [False, True])
def test_a_draft_model_s_stream_in_miniature(
    accepts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device that accepts guesses too, and on one that does not."""
    cpu, *others = device.DEVICES
    devices = (cpu._replace(accepts_guesses=accepts), *others)
    monkeypatch.setattr(device, "DEVICES", devices)
    drafter = DraftModelDrafter.follow
    followed: list[Any] = []

    def follow(*given: Any) -> Any:
        followed.append(drafter(*given))
        return followed[-1]

    monkeypatch.setattr(DraftModelDrafter, "follow", follow)
    engine = build("Llama-3.2-1B", smoke=True, num_guesses=2, async_scheduling=True)
    found, tokens = drafting.stream(engine, SMOKE)
    assert len(tokens) == SMOKE.output and found["tokens_per_s"] > 0
    assert found["tokens a step"] > 2  # each guess is right
    assert any(one is not None for one in followed) == accepts
