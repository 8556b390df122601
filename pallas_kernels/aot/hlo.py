"""Reads the HLO after XLA's optimisations: finds copies of cache or weights, counts launches.

A copy is any instruction that fills a buffer as large as a whole watched array or as one layer of
it. The cache of a case is given a size that nothing else in it has, so that its number of elements
gives a copy away whatever shape or type it has.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

COMPUTATION = re.compile(r"^(?:ENTRY )?%?(\S+) \(.*\) -> .* \{$")
INSTRUCTION = re.compile(r"^\s+(ROOT )?%?(\S+) = (.*?[\])}]) ([a-z][\w-]*)\((.*)$")
ARRAY = re.compile(r"\b(?:pred|[a-z]+\d+\w*)\[([\d,]*)\]")
CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.-]+)")
LOOP_BODY = re.compile(r" while\(.*body=%?([\w.-]+)")
TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
CALLED_BY_FUSION = re.compile(r" fusion(?:-start)?\(.*calls=%?([\w.-]+)")

SMALLEST_MATRIX = 2**18  # elements

# These instructions fill no buffer, or write into the one that they were given.
NO_COPY = {
    "bitcast",
    "call",
    "conditional",
    "constant",
    "copy-done",  # of what a copy-start fills
    "dynamic-update-slice",
    "fusion-done",
    "get-tuple-element",
    "optimization-barrier",
    "parameter",
    "scatter",
    "tuple",
    "while",
}
# These instructions start nothing on the device, or wait for what another one started.
NO_LAUNCH = {
    "bitcast",
    "constant",
    "copy-done",
    "fusion-done",
    "get-tuple-element",
    "optimization-barrier",
    "parameter",
    "tuple",
}
IN_PLACE = ("dynamic-update-slice", "scatter")
TRANSPARENT = ("bitcast", "convert", "copy", "reshape", "tuple")


class Watched(NamedTuple):
    """The shapes of arrays that must not be copied.

    Attributes:
        sizes: numbers of elements, of a cache, which may be copied in any shape.
        shapes: lengths of the axes longer than one, in ascending order, of weights: an activation
            may have as many elements.
    """

    sizes: frozenset[int] = frozenset()
    shapes: frozenset[tuple[int, ...]] = frozenset()

    def match(self, shape: tuple[int, ...]) -> bool:
        return math.prod(shape) in self.sizes or _axes(shape) in self.shapes


def watch(cache: tuple[int, ...] | None = None, weights: Iterable[tuple[int, ...]] = ()) -> Watched:
    """Watches for copies of a cache [L, 2, ...] and of weights, some of them stacks [L, ...].

    One layer of the cache, its keys or its values count, too, and so does one layer of a stack. A
    stack of vectors (the scales of norms) is [L, E], as activations are. So small arrays are not
    watched.
    """
    parts = [cache[i:] for i in range(3)] if cache else []
    large = [shape for shape in weights if math.prod(shape[-2:]) >= SMALLEST_MATRIX]
    matrices = [shape[-2:] for shape in large if len(shape) >= 2]
    stacks = [shape for shape in large if len(shape) > 2]
    return Watched(
        frozenset(math.prod(part) for part in parts),
        frozenset(_axes(shape) for shape in matrices + stacks),
    )


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(length for length in shape if length > 1))


def find_copies(text: str, watched: Watched) -> list[str]:
    """Finds instructions of an optimised module that fill a watched buffer.

    Updates in place are none: whether XLA really does them in place shows in the temporary
    memory, which would hold the array otherwise.
    """
    computations = dict(_computations(text))
    fused = set(CALLED_BY_FUSION.findall(text))
    found = []
    for name, lines in computations.items():
        if name in fused:
            continue
        for line in lines:
            made = INSTRUCTION.match(line)
            if made is None or made[4] in NO_COPY or not any(map(watched.match, _shapes(made))):
                continue
            if made[4].startswith("fusion") and _updates_in_place(computations, line):
                continue
            if made[4] == "custom-call" and "output_to_operand_aliasing" in line:
                continue
            found.append(line.strip().split(", metadata=")[0][:200])
    return found


def launches_per_turn(text: str) -> int:
    """Counts the kernels and copies that one turn of an optimised module's loop starts.

    Of several loops the one that starts the most counts. Loops inside it count with all their
    turns, or with one if XLA does not know how many. It is 0 without a loop.
    """
    computations = dict(_computations(text))

    def launches(line: str) -> int:
        if loop := LOOP_BODY.search(line):
            turns = TURNS.search(line)
            return (int(turns[1]) if turns else 1) * sum(map(launches, computations[loop[1]]))
        made = INSTRUCTION.match(line)
        return int(made is not None and made[4] not in NO_LAUNCH)

    bodies = (computations[name] for name in LOOP_BODY.findall(text))
    return max((sum(map(launches, body)) for body in bodies), default=0)


def _computations(text: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        start = COMPUTATION.match(line)
        if start:
            name, lines = start[1], []
        elif line.startswith("}"):
            yield name, lines
        else:
            lines.append(line)


def _shapes(made: re.Match[str]) -> list[tuple[int, ...]]:
    """Shapes of the array, or of the tuple of arrays, that an instruction returns."""
    result = made[3]
    if made[4].endswith("-start") and result.startswith("(("):
        result = result.partition("), ")[2]  # what follows the operands, which come first
    return [tuple(int(n) for n in dims.split(",") if n) for dims in ARRAY.findall(result)]


def _updates_in_place(computations: dict[str, list[str]], fusion: str) -> bool:
    called = CALLED.search(fusion)
    opcodes = [
        made[4]
        for line in computations.get(called[1] if called else "", ())
        if (made := INSTRUCTION.match(line)) and (made[1] or made[4] in IN_PLACE)
    ]
    return any(op in IN_PLACE for op in opcodes) and opcodes[-1] in (*IN_PLACE, *TRANSPARENT)
