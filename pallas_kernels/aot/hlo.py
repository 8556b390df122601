"""Copies of the cache or of weights in the HLO that XLA ends up with.

A copy is any instruction that fills a buffer as large as a whole watched array, as one layer of
it, or (for a cache) as the keys of one layer. The arrays of a case are given sizes that nothing
else in it has, so the number of elements identifies them, whatever shape or type the copy has.
"""

import math
import re
from collections.abc import Iterable, Iterator

COMPUTATION = re.compile(r"^(?:ENTRY )?%?(\S+) \(.*\) -> .* \{$")
INSTRUCTION = re.compile(r"^\s+(ROOT )?%?(\S+) = (.*?[\])}]) ([a-z][\w-]*)\((.*)$")
ARRAY = re.compile(r"\b(?:pred|[a-z]+\d+\w*)\[([\d,]*)\]")
CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.-]+)")
CALLED_BY_FUSION = re.compile(r" fusion\(.*calls=%?([\w.-]+)")

# These fill no buffer, or write into the one that they were given.
NO_COPY = {
    "bitcast",
    "call",
    "conditional",
    "constant",
    "dynamic-update-slice",
    "get-tuple-element",
    "optimization-barrier",
    "parameter",
    "scatter",
    "tuple",
    "while",
}
IN_PLACE = ("dynamic-update-slice", "scatter")
TRANSPARENT = ("bitcast", "convert", "copy", "reshape", "tuple")


def watched_sizes(shapes: Iterable[tuple[int, ...]], stacked: bool = True) -> set[int]:
    """Numbers of elements that would be a copy of one of these arrays.

    Args:
        shapes: of the arrays; those under a million elements are not worth watching.
        stacked: the first axis counts layers, so one index of it is watched as well, and where
            the second axis has length 2 (keys and values) one index of that.
    """
    sizes: set[int] = set()
    for shape in shapes:
        sizes.add(math.prod(shape))
        if stacked and len(shape) > 2:
            sizes.add(math.prod(shape[1:]))
            if shape[1] == 2:
                sizes.add(math.prod(shape[2:]))
    return {size for size in sizes if size >= 10**6}


def find_copies(text: str, watched: set[int]) -> list[str]:
    """Instructions of an optimised module that fill a buffer of a watched size.

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
            if made is None or made[4] in NO_COPY or not _sizes(made[3]) & watched:
                continue
            if made[4] == "fusion" and _updates_in_place(computations, line):
                continue
            if made[4] == "custom-call" and "output_to_operand_aliasing" in line:
                continue
            found.append(line.strip().split(", metadata=")[0][:200])
    return found


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


def _sizes(result: str) -> set[int]:
    """Numbers of elements of the array, or of the tuple's arrays, that an instruction makes."""
    return {
        math.prod(int(n) for n in dims.split(",")) if dims else 1 for dims in ARRAY.findall(result)
    }


def _updates_in_place(computations: dict[str, list[str]], fusion: str) -> bool:
    called = CALLED.search(fusion)
    opcodes = [
        made[4]
        for line in computations.get(called[1] if called else "", ())
        if (made := INSTRUCTION.match(line)) and (made[1] or made[4] in IN_PLACE)
    ]
    return any(op in IN_PLACE for op in opcodes) and opcodes[-1] in (*IN_PLACE, *TRANSPARENT)
