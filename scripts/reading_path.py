"""What one reads to follow a decode step, from `LLM.generate` to the entry of a kernel.

    python -m scripts.reading_path            its functions in the order of calls, and their lines
    python -m scripts.reading_path --write    the list of them in docs/how-it-works.md

`tests/docs/test_reading_path.py` runs a decode step: every function that is on the way must be in
the list, and every one in the list must run.
"""

import argparse
import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-it-works.md"
LIST = re.compile(r"(<!-- path:start[^>]*-->\n).*?(<!-- path:end -->)", re.DOTALL)


class Stop(NamedTuple):
    """A file on the way, its functions in the order in which they are called, and what they do."""

    file: str
    functions: tuple[str, ...]
    what: str


PATH = (
    Stop("jax_engine/llm.py", ("LLM.generate",), "prompts and parameters come in"),
    Stop("jax_engine/engine/calls.py", ("Calls.run",), "the loop gets them; the call waits"),
    Stop(
        "jax_engine/engine/engine_loop.py",
        ("EngineLoop.run", "EngineLoop.turn", "EngineLoop._step"),
        "the loop, on its own thread, steps for all calls",
    ),
    Stop(
        "jax_engine/engine/llm_engine.py",
        ("LLMEngine.run_step", "LLMEngine._run_step"),
        "a step: plan, model, outputs",
    ),
    Stop(
        "jax_engine/engine/pipeline.py",
        ("StepPipeline.step", "StepPipeline._launch_ahead", "StepPipeline._launch"),
        "the next step is launched while one runs",
    ),
    Stop("jax_engine/core/scheduler.py", ("Scheduler.schedule",), "the mode of scheduling"),
    Stop(
        "jax_engine/core/unified.py",
        ("schedule", "continue_running", "run_chunks"),
        "which tokens of which sequences are computed",
    ),
    Stop(
        "jax_engine/core/scheduler_state.py",
        ("SchedulerState.run", "SchedulerState.allocate"),
        "a sequence gets its tokens and slots for them",
    ),
    Stop(
        "jax_engine/core/block_manager.py",
        ("BlockManager.allocate_slots",),
        "slots in blocks, and copy-on-write",
    ),
    Stop("jax_engine/core/scheduler_output.py", ("make_step", "_row"), "the plan becomes a `Step`"),
    Stop(
        "jax_engine/worker/worker.py",
        ("Worker.launch", "Worker._start"),
        "blocks move, the step starts on the device",
    ),
    Stop("jax_engine/worker/step_plan.py", ("pack_step", "unpack_step"), "one array to the device"),
    Stop(
        "jax_engine/worker/compiled_steps.py",
        ("CompiledSteps.__call__", "CompiledSteps._step"),
        "the compiled function: model, then sampler",
    ),
    Stop(
        "jax_engine/models/decoder.py",
        ("Decoder.run_layers", "LayerStack.__call__", "DecoderLayer.__call__"),
        "a scan over the layers",
    ),
    Stop(
        "jax_engine/layers/attention.py",
        ("Attention.__call__", "attend"),
        "keys are written, then read",
    ),
    Stop("pallas_kernels/paged_attention.py", ("paged_attention",), "the kernel's entry"),
)


def num_lines(stop: Stop) -> int:
    """Lines of its functions, signatures and docstrings included."""
    found = dict(_functions(ast.parse((ROOT / stop.file).read_text("utf-8"))))
    return sum(found[name] for name in stop.functions)


def _functions(tree: ast.Module) -> list[tuple[str, int]]:
    """(name, lines) of a module's functions and of its classes' methods."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    places = [("", tree.body), *((f"{one.name}.", one.body) for one in classes)]
    return [
        (prefix + node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for prefix, body in places
        for node in body
        if isinstance(node, ast.FunctionDef)
    ]


def as_list() -> str:
    """The path as a list for the page."""
    lines = []
    for number, stop in enumerate(PATH, 1):
        names = ", ".join(f"`{name}`" for name in stop.functions)
        lines.append(f"{number}. `{stop.file}`: {names}: {stop.what}.\n")
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.reading_path")
    parser.add_argument("--write", action="store_true", help="the list in docs/how-it-works.md")
    if parser.parse_args().write:
        text = PAGE.read_text("utf-8")
        PAGE.write_text(LIST.sub(lambda at: at[1] + as_list() + at[2], text), "utf-8")
        return
    counts = [num_lines(stop) for stop in PATH]
    for stop, count in zip(PATH, counts, strict=True):
        print(f"{count:5d}  {stop.file}: {', '.join(stop.functions)}")
    whole = sum(len((ROOT / stop.file).read_text("utf-8").splitlines()) for stop in PATH)
    print(f"{sum(counts):5d}  lines in {len(PATH)} files, which have {whole} lines in all")


if __name__ == "__main__":
    main()
