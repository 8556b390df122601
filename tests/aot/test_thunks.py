"""What one run of a program starts, counted from lists as XLA writes them."""

from pathlib import Path

import pytest

from pallas_kernels.aot.thunks import Starts, count, parse, starts_of

# A step whose loop over layers the host runs: a graph before it, one a turn, one after it.
BY_LAYERS = """\
000: kCommandBuffer [source       | next=004 (1)]
    001: kCopy         [source | sink] kCopy
    002: kCustomKernel [source | sink] loop_fusion grid: [1, 1, 1] threads: [32, 1, 1]
003: kWhile         [prev=000 (1) | next=000 (1)]
condition:
    004: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1] threads: [1, 1, 1]
  body:
    000: kCommandBuffer [source | sink]
        005: kCustomKernel       [source       | next=006 (2)] norm grid: [1, 1, 1]
        006: kDynamicSliceFusion [prev=005 (1) | sink        ] params=2, results=2
            007: kCublasLtMatmul [source | sink] kCublasLtMatmul
    008: kCopy [source | sink] kCopy
000: kCommandBuffer [prev=003 (1) | sink        ]
    009: kCublasLtMatmul [source | sink] kCublasLtMatmul
"""
# The same in one graph.
WHOLE = """\
000: kCommandBuffer [source | sink]
    001: kCopy           [source       | next=003 (1)] kCopy
    002: kCustomKernel   [source       | sink        ] loop_fusion grid: [1, 1, 1]
    003: kWhile          [prev=002 (1) | next=009 (1)]
condition:
        004: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1]
      body:
        005: kCustomKernel       [source       | next=006 (2)] norm grid: [1, 1, 1]
        006: kDynamicSliceFusion [prev=005 (1) | sink        ] params=2, results=2
            007: kCublasLtMatmul [source | sink] kCublasLtMatmul
        008: kCopy [source | sink] kCopy
    009: kCublasLtMatmul [prev=003 (1) | sink        ] kCublasLtMatmul
"""


def test_a_loop_that_the_host_runs_is_walked_through_turn_by_turn() -> None:
    """Two graphs around it; in each of 16 turns a graph with slices, and a copy outside of it."""
    starts = count(parse(BY_LAYERS), {3: 16})
    assert starts == Starts(host=2 + 16 * 2, graphs=2 + 16, updates=16, kernels=3 + 16 * 3)


def test_a_loop_in_a_graph_is_launched_with_it() -> None:
    starts = count(parse(WHOLE), {3: 16})
    assert starts == Starts(host=1, graphs=1, updates=0, kernels=3 + 16 * 3)


def test_a_graph_without_slices_or_in_a_single_turn_stays_as_it_is() -> None:
    without = BY_LAYERS.replace("kDynamicSliceFusion", "kSequential")
    assert count(parse(without), {3: 16}).updates == 0
    assert count(parse(BY_LAYERS), {3: 1}).updates == 0
    assert count(parse(BY_LAYERS), {}) == count(parse(BY_LAYERS), {3: 1})


def test_loops_in_loops_multiply() -> None:
    nested = """\
001: kWhile [source | sink]
condition:
    002: kCustomKernel [source | sink] compare
  body:
    003: kWhile [source | sink]
condition:
        004: kCustomKernel [source | sink] compare
      body:
        005: kCustomKernel [source | sink] inner
    006: kCustomKernel [source | sink] after
"""
    assert count(parse(nested), {1: 3, 3: 5}) == Starts(host=3 * (5 + 1), kernels=3 * (5 + 1))


def test_turns_are_found_by_the_names_of_loops(tmp_path: Path) -> None:
    """XLA numbers the thunks, names them in another file, and has the turns in the HLO."""
    module = tmp_path / "module_0001.jit_step"
    Path(f"{module}.thunk_sequence_after_thunk_passes.txt").write_text(BY_LAYERS)
    Path(f"{module}.thunk_sequence.txt").write_text("not this one")
    info = '  thunk_info {\n    profile_annotation: "while.18"\n    thunk_id: 3\n  }\n'
    Path(f"{module}.thunk_metadata.txt").write_text(f"thunk_metadata {{\n{info}}}\n")
    hlo = (
        '  %while.1 = (s32[]) while(%p), body=%b, backend_config={"known_trip_count":{"n":"9"}}\n'
        '  %while.18 = (s32[]) while(%p), body=%b, backend_config={"known_trip_count":{"n":"16"}}\n'
    )
    assert starts_of(tmp_path, hlo) == count(parse(BY_LAYERS), {3: 16})


def test_nothing_is_counted_where_nothing_was_dumped(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no list of thunks"):
        starts_of(tmp_path, "")
