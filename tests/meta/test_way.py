"""What a reader of a decode step must open stays as little as it is."""

import ast

import pytest

from scripts import annotated, way
from scripts.way import Way, count, walk
from tests.meta.trees import ROOT

# A little above what `python -m scripts.way decode` has counted: 21, 81, 836 and 20.
MOST = {"files": 22, "functions": 83, "lines": 850, "type files": 21}
LEAST_FUNCTIONS = 40  # fewer would mean that the recording has missed the step


@pytest.mark.slow
def test_a_decode_step_is_no_longer_than_it_was() -> None:
    """The functions without which there is no step are found, so the counts are of a step."""
    functions = walk("decode")
    found = {name for its in functions.values() for name in its}
    assert {"EngineLoop.turn", "Scheduler.schedule", "pack_step", "Worker.collect"} <= found
    counts = count(functions)
    assert counts.functions >= LEAST_FUNCTIONS
    now = (counts.files, counts.functions, counts.lines, len(counts.types))
    assert {name: n for (name, most), n in zip(MOST.items(), now, strict=True) if n > most} == {}


def test_lines_are_counted_once_and_without_blank_ones_and_docstrings() -> None:
    """`Way.recording` is a method with a function inside and blank lines."""
    file = "scripts/way.py"
    known = way._functions(file)
    (outer,), (inner,) = known["Way.recording"], known["Way.recording.<locals>.starts"]
    text = (ROOT / file).read_text("utf-8").splitlines()[outer.lineno - 1 : outer.end_lineno]
    doc = ast.get_docstring(outer, clean=False)
    assert doc is not None and "\n" not in doc
    expected = sum(bool(line.strip()) for line in text) - 1
    assert count({file: {"a": outer, "b": inner}}).lines == expected
    assert count({file: {"b": inner}}).lines < expected


def test_a_lambda_counts_as_the_function_around_it() -> None:
    noted = Way()
    file = "jax_engine/engine/engine_loop.py"
    stop = way._functions(file)["EngineLoop.stop"][0]
    noted.entered = {
        (file, "EngineLoop.stop.<locals>.<lambda>", stop.lineno),
        (file, "EngineLoop", 1),  # a class's body
        (file, "<module>", 1),
    }
    assert noted.functions() == {file: {"EngineLoop.stop": stop}}


def test_types_are_found_through_imports_and_aliases() -> None:
    """An alias counts as what it stands for; other packages' names and shapes are no types."""
    file = "jax_engine/engine/pipeline.py"
    sampled = way._functions(file)["sampled_rows"][0]
    assert annotated.types_of(file, sampled) == {
        ("jax_engine/core/scheduler_output.py", "SchedulerOutput"),
        ("jax_engine/core/scheduler_output.py", "ScheduledSequence"),
    }
    linear = way._functions("jax_engine/layers/linear.py")["Linear.__call__"][0]
    assert annotated.types_of("jax_engine/layers/linear.py", linear) == {
        ("jax_engine/layers/batch.py", "Batch")
    }
