"""Counts what the host starts in one run of a program, from XLA's list of its thunks.

A thunk is what XLA starts at once: a kernel, a copy, a call of a library, a loop, or a command
buffer, which is a CUDA graph. The host walks the list at each run. It launches a graph as one, and
walks through a loop that is in no graph turn by turn. In such a loop a graph that reads another
slice of an array in each turn must be updated before each launch.

A real machine puts slices into graphs only from CUDA 12.3 on, so the description of the device must
name the versions of its driver and of its toolkit (`pallas_kernels.aot.targets`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LINE = re.compile(r"^(\s*)(\d+): k(\w+)")
CONDITION, BODY = "condition:", "body:"
METADATA = re.compile(r'profile_annotation: "([^"]+)"\s+thunk_id: (\d+)')
TURNS = re.compile(r'%?([\w.-]+) = .* while\(.*"known_trip_count":\{"n":"(\d+)"')
GRAPH, LOOP, SLICES = "CommandBuffer", "While", "DynamicSliceFusion"
ENDINGS = (".thunk_sequence_after_thunk_passes.txt", ".thunk_sequence.txt")
CONTAINERS = ("Sequential", "Conditional", SLICES)


class Starts(NamedTuple):
    """What one run of a program starts.

    Attributes:
        host: Launches by the host: graphs, and what is in none.
        graphs: Graphs among them.
        updates: Graphs that must be updated before their launch, since they are in a loop that the
            host runs and read another slice in each turn.
        kernels: Kernels, copies and calls of libraries that the device carries out.
    """

    host: int = 0
    graphs: int = 0
    updates: int = 0
    kernels: int = 0

    def __add__(self, other: tuple[int, ...]) -> "Starts":  # type: ignore[override]
        return Starts(*(mine + its for mine, its in zip(self, other, strict=True)))

    def times(self, turns: int) -> "Starts":
        return Starts(*(turns * count for count in self))


@dataclass
class Thunk:
    """One entry of the list.

    Attributes:
        number: XLA's number of it, which names it in the list of annotations.
        kind: Without its leading k: "CustomKernel", "CommandBuffer", "While".
        inside: The thunks of a graph or of another container, and of a loop's body.
    """

    number: int
    kind: str
    inside: list["Thunk"] = field(default_factory=list)


def starts_of(dump: Path, text: str) -> Starts:
    """What a run of the program starts that XLA dumped into a folder, with `text` as its HLO.

    Raises:
        FileNotFoundError: XLA dumped no list of thunks.
    """
    # XLA writes the list anew only where a pass may have changed it.
    ending = next((one for one in ENDINGS if any(dump.glob(f"*{one}"))), None)
    if ending is None:
        raise FileNotFoundError(f"XLA dumped no list of thunks into {dump}")
    turns = dict(TURNS.findall(text))
    counted = Starts()
    for file in sorted(dump.glob(f"*{ending}")):
        metadata = file.with_name(file.name.removesuffix(ending) + ".thunk_metadata.txt")
        text = metadata.read_text() if metadata.exists() else ""
        names = {int(n): name for name, n in METADATA.findall(text)}
        known = {n: int(turns[name]) for n, name in names.items() if name in turns}
        counted += count(parse(file.read_text()), known)
    return counted


def parse(listing: str) -> list[Thunk]:
    """The thunks of XLA's list, which shows by indentation what is inside of what.

    A loop's condition is left out: its number of turns is known, so that nobody evaluates it.
    """
    top = Thunk(0, "Sequential")
    stack = [(-1, top)]
    in_condition = False
    for line in listing.splitlines():
        if line.strip() in (CONDITION, BODY):
            in_condition = line.strip() == CONDITION
            continue
        found = LINE.match(line)
        if found is None or in_condition:
            continue
        indent, thunk = len(found[1]), Thunk(int(found[2]), found[3])
        while stack[-1][0] >= indent:
            stack.pop()
        stack[-1][1].inside.append(thunk)
        stack.append((indent, thunk))
    return top.inside


def count(thunks: Iterable[Thunk], turns: Mapping[int, int]) -> Starts:
    """What the host starts when it walks through these thunks.

    Args:
        turns: How often each loop runs, by number of its thunk; a loop that is not named runs once.
    """
    return sum((_count(one, turns, False) for one in thunks), Starts())


def _count(thunk: Thunk, turns: Mapping[int, int], in_loop: bool) -> Starts:
    if thunk.kind == GRAPH:
        kernels = sum(_kernels(one, turns) for one in thunk.inside)
        return Starts(1, 1, int(in_loop and _reads_slices(thunk)), kernels)
    if thunk.kind == LOOP:
        again = turns.get(thunk.number, 1)
        body = sum((_count(one, turns, in_loop or again > 1) for one in thunk.inside), Starts())
        return body.times(again)
    if thunk.kind in CONTAINERS:
        return sum((_count(one, turns, in_loop) for one in thunk.inside), Starts())
    return Starts(host=1, kernels=1)


def _kernels(thunk: Thunk, turns: Mapping[int, int]) -> int:
    """How many kernels one thunk launches in a graph."""
    if not thunk.inside:
        return 1
    inside = sum(_kernels(one, turns) for one in thunk.inside)
    return inside * (turns.get(thunk.number, 1) if thunk.kind == LOOP else 1)


def _reads_slices(thunk: Thunk) -> bool:
    return thunk.kind == SLICES or any(map(_reads_slices, thunk.inside))
