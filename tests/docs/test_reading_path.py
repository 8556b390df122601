"""The reading path of a decode step is the one that a decode step takes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import pytest

from jax_engine import LLM, SamplingParams
from scripts.reading_path import LIST, PAGE, PATH, as_list, num_lines
from tests.meta.trees import PACKAGES, ROOT
from tests.support.tiny_llama import tiny_llama

TOOL = sys.monitoring.PROFILER_ID
MOST_LINES = 1400
# Each of these is entered by what stands before it on the path.
ENDS = ("BlockManager.allocate_slots", "make_step", "pack_step", "paged_attention")
# What only begins a function on the path, and what begins the prompt's step.
AROUND = {
    *(f"CompiledSteps.{name}" for name in ("prepare", "prepare_silently", "compile")),
    "CompiledSteps.function.<locals>.step",
    "LayerStack.__call__.<locals>.pattern",
    "_alone.<locals>.alone",  # around methods of LLMEngine: whose turn it is
    "admit_waiting",
}


def names(code: CodeType) -> tuple[str, str]:
    path = Path(code.co_filename)
    inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
    return (path.relative_to(ROOT).as_posix() if inside else "", code.co_qualname)


@contextmanager
def watched(called: list[tuple[str, str]], on_the_way: set[tuple[str, str]]) -> Iterator[None]:
    """Notes the calls of the packages' functions, and who is on the stack where a part ends."""

    def starts(code: CodeType, _: int) -> None:
        file, name = names(code)
        if not file:
            return
        called.append((file, name))
        frame = sys._getframe(1) if name in ENDS else None
        while frame is not None:
            if names(frame.f_code)[0]:
                on_the_way.add(names(frame.f_code))
            frame = frame.f_back

    sys.monitoring.use_tool_id(TOOL, "reading path")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.PY_START, starts)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.PY_START)
    try:
        yield
    finally:
        sys.monitoring.set_events(TOOL, 0)
        sys.monitoring.register_callback(TOOL, sys.monitoring.events.PY_START, None)
        sys.monitoring.free_tool_id(TOOL)


@pytest.mark.slow
def test_a_decode_step_goes_along_the_path(tmp_path: Path) -> None:
    """All that is on the stack anywhere along it is on it, and all that is on it is called."""
    model, _ = tiny_llama(tmp_path / "tiny")
    llm = LLM(str(model), skip_tokenizer_init=True, block_size=4, num_gpu_blocks_override=9,
              max_model_len=16, max_num_seqs=2)  # fmt: skip
    called: list[tuple[str, str]] = []
    on_the_way: set[tuple[str, str]] = set()
    with watched(called, on_the_way):
        llm.generate([[5, 6]], SamplingParams(max_tokens=3, temperature=0), use_tqdm=False)
    path = {(stop.file, name) for stop in PATH for name in stop.functions}
    left_out = {(file, name) for file, name in on_the_way - path if name not in AROUND}
    assert not left_out, "these are on the way, too"
    began = {("jax_engine/engine/engine_loop.py", "EngineLoop.run")} & on_the_way  # with the LLM
    assert not path - set(called) - began, "these are not called"


def test_it_is_short_and_on_the_page() -> None:
    """After a change of the path: `python -m scripts.reading_path --write`."""
    assert sum(num_lines(stop) for stop in PATH) <= MOST_LINES
    page = PAGE.read_text("utf-8")
    assert LIST.sub(lambda at: at[1] + as_list() + at[2], page) == page and as_list() in page
