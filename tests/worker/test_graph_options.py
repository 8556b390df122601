"""XLA's options for CUDA graphs: by mode, by kind of step, and from the setting to the compiler."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_engine import LLM
from jax_engine.operations import device
from jax_engine.operations.device import GRAPH_OPTIONS, Device
from jax_engine.worker import compiled_steps
from tests.support.tiny_llama import tiny_llama


def _full(options: dict[str, Any]) -> bool:
    return bool(options.get("xla_gpu_command_buffer_unroll_loops"))


@pytest.mark.parametrize(
    ("mode", "decode", "mixed"),
    [
        ("NONE", "none", "none"),
        ("PIECEWISE", "layers", "layers"),
        ("FULL", "step", "step"),
        ("FULL_DECODE_ONLY", "step", "none"),
        ("FULL_AND_PIECEWISE", "step", "layers"),
    ],
)
def test_modes_of_cuda_graphs_by_kind_of_step(mode: Any, decode: str, mixed: str) -> None:
    gpu, cpu = Device("gpu", compiler_options={"an_option": 1}), Device("cpu")
    for decode_only, expected in ((True, decode), (False, mixed)):
        options = gpu.step_options(mode, decode_only=decode_only)
        assert options["an_option"] == 1
        assert _full(options) == (expected == "step")
        assert (options.get("xla_gpu_enable_command_buffer") == "") == (expected == "none")
        assert (options == gpu.compiler_options) == (expected == "layers")
        assert cpu.step_options(mode, decode_only=decode_only) == {}


def test_an_amd_gpu_makes_no_graph_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA would make five graphs of a layer instead of three."""
    monkeypatch.setattr(device, "gfx_version", lambda: "gfx942")
    gpu = Device("gpu", compiler_options={"an_option": 1})
    modes: list[tuple[Any, dict[str, Any]]] = [
        ("FULL", {}),
        ("FULL_AND_PIECEWISE", {}),
        ("FULL_DECODE_ONLY", GRAPH_OPTIONS["NONE"]),
    ]
    for mode, graphs in modes:
        assert gpu.step_options(mode, decode_only=True) == {"an_option": 1}
        assert gpu.step_options(mode, decode_only=False) == {"an_option": 1} | graphs


@pytest.mark.parametrize("mode", GRAPH_OPTIONS)
def test_xla_knows_the_options(mode: Any) -> None:
    """XLA refuses a name or a value that it does not know on every platform."""
    jitted = jax.jit(lambda x: x + 1, compiler_options=GRAPH_OPTIONS[mode])
    assert jitted.lower(jnp.zeros(2)).compile()(jnp.zeros(2)).sum() == 2


@pytest.mark.slow
def test_the_setting_reaches_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of an engine is compiled with the options of its kind, as on a GPU."""
    model, _ = tiny_llama(tmp_path / "tiny")
    jit, seen = jax.jit, set[tuple[bool, bool]]()
    monkeypatch.setattr(compiled_steps, "this_device", lambda: Device("gpu"))
    compile_step = compiled_steps.CompiledSteps.compile

    def compile(steps: Any, shape: Any, kv_cache: Any) -> Any:
        def watched(*args: Any, **options: Any) -> Any:
            seen.add((shape.decode_only, _full(options["compiler_options"])))
            return jit(*args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(compiled_steps.jax, "jit", watched)
            return compile_step(steps, shape, kv_cache)

    monkeypatch.setattr(compiled_steps.CompiledSteps, "compile", compile)
    llm = LLM(
        str(model), skip_tokenizer_init=True, block_size=4, num_gpu_blocks_override=9,
        max_model_len=16, max_num_seqs=2, compilation_config={"cudagraph_mode": "FULL_DECODE_ONLY"},
    )  # fmt: skip
    llm.generate([[5, 6, 7]], use_tqdm=False)
    assert seen == {(True, True), (False, False)}
