"""Counts what the devices of a mesh say to each other in one run of a program, from its HLO.

A collective is an instruction of XLA's, such as an all-gather, which a library carries out, or a
kernel of Mosaic's that writes into other devices' memory itself (`ONE_SHOT`).
"""

import math
import re
from typing import NamedTuple

from pallas_kernels.aot.hlo import COMPUTATION, INSTRUCTION, LOOP_BODY, TURNS

KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)
ONE_SHOT = "one-shot kernel"
_OF_MOSAIC = re.compile(r"\buses_xla_collective_metadata = true\b")
_ENTRY = re.compile(r"^ENTRY %?(\S+) ", re.MULTILINE)
_CALLED = re.compile(r" (?:call|async-start)\(.*(?:to_apply|calls)=%?([\w.-]+)")
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")


class Collective(NamedTuple):
    """What the collectives of one kind amount to in one run of a program.

    Attributes:
        kind: One of `KINDS`, or `ONE_SHOT`.
        times: How many there are, those of loops in all their turns.
        result_bytes: Bytes of their results on one device, together: of an all-gather what all
            devices have, its own part included. Of `ONE_SHOT` what it was sent.
    """

    kind: str
    times: int
    result_bytes: int


def find_collectives(text: str) -> list[Collective]:
    """The collectives of an optimised module, by kind.

    Raises:
        ValueError: A collective is in a loop whose number of turns XLA does not know.
    """
    computations = _bodies(text)
    entry = _ENTRY.search(text)
    found: dict[str, tuple[int, int]] = {}

    def walk(name: str, times: int) -> None:
        for line in computations.get(name, ()):
            if loop := LOOP_BODY.search(line):
                turns = TURNS.search(line)
                if turns is None and _talks(computations, loop[1]):
                    raise ValueError(f"no number of turns of a loop that talks: {line[:200]}")
                walk(loop[1], times * (int(turns[1]) if turns else 1))
            elif called := _CALLED.search(line):
                walk(called[1], times)
            elif (made := _collective(line)) is not None:
                kind, size = made
                count, before = found.get(kind, (0, 0))
                found[kind] = (count + times, before + times * size)

    if entry is not None:
        walk(entry[1], 1)
    return [Collective(kind, *sizes) for kind, sizes in sorted(found.items())]


def _bodies(text: str) -> dict[str, list[str]]:
    bodies: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if start := COMPUTATION.match(line):
            name = start[1]
            bodies[name] = []
        elif name:
            bodies[name].append(line)
    return bodies


def _talks(computations: dict[str, list[str]], name: str) -> bool:
    return any(_collective(line) is not None for line in computations.get(name, ()))


def _collective(line: str) -> tuple[str, int] | None:
    """The kind of a collective, and the bytes of its result; None for other instructions."""
    made = INSTRUCTION.match(line)
    if made is None:
        return None
    kind = made[4].removesuffix("-start")
    sizes = [_bytes(one) for one in _ARRAY.finditer(made[3])]
    if kind in KINDS:
        # What starts one returns its operands, then its results, of which each has one.
        return kind, sum(sizes[len(sizes) // 2 :] if made[4].endswith("-start") else sizes)
    if made[4] == "custom-call" and _OF_MOSAIC.search(line):
        return ONE_SHOT, max(sizes)  # beside what was received: the sum, and semaphores
    return None


def _bytes(array: re.Match[str]) -> int:
    bits = int(array[2] or 8)
    return math.prod(int(n) for n in array[3].split(",") if n) * bits // 8
