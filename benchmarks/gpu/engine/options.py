"""XLA's options for GPUs, one at a time against the present ones, over a decode and a prompt step.

Then those that gained, together. What ships is `compiler_options` in
`jax_engine/operations/device.py`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.gpu.engine.models import Scale
from benchmarks.gpu.engine.replay import Step, compile_with, device_seconds, steps
from jax_engine import LLMEngine

GRAPHS = "xla_gpu_enable_command_buffer"
# Without loops: how a scan over layers becomes one graph a layer, or one graph in all.
KINDS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL"
VARIANTS: dict[str, dict[str, Any]] = {
    "present": {},
    "no command buffers": {GRAPHS: ""},
    "command buffers of all calls": {GRAPHS: KINDS, "xla_gpu_graph_min_graph_size": 1},
    "command buffers with the loop over layers": {
        GRAPHS: f"{KINDS},WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION",
        "xla_gpu_graph_min_graph_size": 1,
    },
    "Triton's matrix products": {"xla_gpu_enable_triton_gemm": True},
    "cublasLt": {"xla_gpu_enable_cublaslt": True},
    "no autotuning": {"xla_gpu_autotune_level": 0},
    "latency-hiding scheduler": {"xla_gpu_enable_latency_hiding_scheduler": True},
    "loop over layers unrolled twice": {
        "xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"
    },
}
SMOKE = ("present", "cublasLt")
GAIN = 1.02  # below it is noise
THREADS = 4  # compile at a time


def options_grid(
    engine: LLMEngine, scale: Scale, smoke: bool, emit: Callable[[dict[str, Any]], None]
) -> None:
    """Milliseconds a step on the device under each variant, and the present time over it."""
    variants = {name: VARIANTS[name] for name in (SMOKE if smoke else VARIANTS)}
    kept = steps(engine, scale)
    found: dict[str, dict[str, Any]] = {kind: {} for kind in kept}
    for kind, (step, _) in kept.items():
        _measure(engine, scale, step, variants, found[kind])
        emit(found)
        gained = [n for n, one in found[kind].items() if one.get("ratio_to_present", 0) > GAIN]
        if len(gained) > 1:
            together = {key: value for name in gained for key, value in VARIANTS[name].items()}
            _measure(engine, scale, step, {" + ".join(gained): together}, found[kind])
            emit(found)


def _measure(
    engine: LLMEngine,
    scale: Scale,
    step: Step,
    variants: dict[str, dict[str, Any]],
    found: dict[str, Any],
) -> None:
    """Compiled beside each other, then timed one after another."""
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = {n: pool.submit(compile_with, engine, step, o) for n, o in variants.items()}
    for name, job in jobs.items():
        try:
            ms = 1e3 * device_seconds(engine, step, job.result(), scale)
        except Exception as error:
            lines = str(error).splitlines() or [""]
            found[name] = {"error": f"{type(error).__name__}: {lines[0][:150]}"}
            continue
        present = found.get("present", {}).get("ms", ms)
        found[name] = {"ms": round(ms, 4), "ratio_to_present": round(present / ms, 3)}
