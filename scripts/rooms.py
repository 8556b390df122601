"""The rooms of the code and a request's way through them, in rows, from the folders and imports.

A *room* is a folder of a package, a package without folders of its own, or `jax_engine/step.py`. A
room is on the *way* if an arrow of `WAY` begins or ends there. The longest path of arrows is the
way's *spine*. The rooms of the way stand in rows, each below all rooms that lead to it. Another
room stands beside a row: as far as may be, what imports it is above, and what it imports is below.
A room that imports no other, and that no other imports, stands apart.

A new folder is in the picture by itself.
"""

import ast
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import combinations
from pathlib import Path

from scripts.package_map import about

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("jax_engine", "pallas_kernels", "cpu_kernels", "reference")
STEP = "jax_engine/step.py"
# The way of a request: from, to, and what goes there. One of the two rooms imports the other.
WAY = (
    ("jax_engine/commands", "jax_engine/serving", ""),
    ("jax_engine/ray", "jax_engine/serving", ""),
    ("jax_engine/serving", "jax_engine", "messages"),
    ("jax_engine", "jax_engine/engine", "Request"),
    ("jax_engine/engine", "jax_engine/core", "SequenceGroup"),
    ("jax_engine/engine", "jax_engine/tokenization", ""),
    ("jax_engine/engine", "jax_engine/guided", ""),
    ("jax_engine/core", STEP, "make_step"),
    (STEP, "jax_engine/worker", "launch, collect"),
    ("jax_engine/worker", "jax_engine/models", ""),
    ("jax_engine/worker", "jax_engine/sampling", ""),
    ("jax_engine/models", "jax_engine/layers", ""),
    ("jax_engine/models", "jax_engine/weights", ""),
    ("jax_engine/layers", "jax_engine/operations", ""),
    ("jax_engine/layers", "pallas_kernels", ""),
    ("jax_engine/operations", "pallas_kernels", ""),
    ("jax_engine/operations", "cpu_kernels", ""),
)
# What a room says, where the first sentence of its docstring is too long for a box.
SAYS = {
    "jax_engine": "LLM, SamplingParams, outputs",
    "jax_engine/commands": "jax-engine serve",
    "jax_engine/compat": "vLLM's other names",
    "jax_engine/config": "settings",
    "jax_engine/core": "scheduler, blocks, cache",
    "jax_engine/engine": "requests, a step, outputs",
    "jax_engine/guided": "grammars",
    "jax_engine/kv_store": "KV files",
    "jax_engine/layers": "attention, linear",
    "jax_engine/lora": "adapters",
    "jax_engine/models": "families, loaders",
    "jax_engine/operations": "one for a device",
    "jax_engine/parallel": "several devices",
    "jax_engine/processes": "start, watch, end",
    "jax_engine/quantize": "numbers to codes",
    "jax_engine/ray": "Ray Serve, ray.data",
    "jax_engine/sampling": "the sampler",
    "jax_engine/serving": "HTTP, AsyncLLM",
    "jax_engine/speculation": "guesses of tokens",
    STEP: "Step and StepResult: numbers, no objects",
    "jax_engine/tokenization": "text and tokens",
    "jax_engine/weights": "formats",
    "jax_engine/worker": "one compiled step",
    "cpu_kernels": "CPUs",
    "pallas_kernels": "GPUs, and XLA for all",
    "reference": "the oracle: NumPy",
}


@cache
def rooms() -> dict[str, Counter[str]]:
    """Each room, and how often its files import from each other one.

    Raises:
        LookupError: `WAY` or `SAYS` names a room that is gone, or an arrow joins two rooms of which
            neither imports the other.
    """
    found = {name: Counter(_imported(name)) for name in _names()}
    named = {room for one, other, _ in WAY for room in (one, other)} | set(SAYS)
    if named - set(found):
        raise LookupError(f"rooms that are gone: {', '.join(sorted(named - set(found)))}")
    for one, other, _ in WAY:
        if not (found[one][other] or found[other][one]):
            raise LookupError(f"there is no way from {one} to {other}: neither imports the other")
    return found


def _names() -> list[str]:
    inits = [path for name in PACKAGES for path in ROOT.glob(f"{name}/__init__.py")]
    inits += ROOT.glob("jax_engine/*/__init__.py")
    return [STEP, *sorted(path.parent.relative_to(ROOT).as_posix() for path in inits)]


def _imported(room: str) -> Iterable[str]:
    """The other rooms that a room's files import, once for each import.

    What all rooms may import is no room: the modules on the top level of `jax_engine`, as its
    errors. Its room is `LLM`'s.
    """
    for file in _files(room):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            yield from (found for name in names if (found := _room_of(name)) not in ("", room))


def _files(room: str) -> list[Path]:
    path = ROOT / room
    if path.is_file():
        return [path]
    return sorted(path.glob("*.py") if room == "jax_engine" else path.rglob("*.py"))


def _room_of(module: str) -> str:
    """The room of a module by its dotted name, or nothing."""
    package, _, rest = module.partition(".")
    if package != "jax_engine":
        return package if package in PACKAGES else ""
    inner = rest.split(".")[0]
    if f"{package}/{inner}.py" == STEP:
        return STEP
    if inner and (ROOT / package / inner / "__init__.py").exists():
        return f"{package}/{inner}"
    return package if inner in ("", "llm") else ""


def rows_of_the_way() -> list[list[str]]:
    """The rooms of the way, row by row: each stands below all rooms that lead to it."""
    row: dict[str, int] = {}

    def place(room: str) -> int:
        if room not in row:
            row[room] = 1 + max((place(one) for one, other, _ in WAY if other == room), default=-1)
        return row[room]

    for _, other, _ in WAY:
        place(other)
    return [[room for room in row if row[room] == i] for i in range(1 + max(row.values()))]


def spine() -> list[str]:
    """The longest path of arrows; of several, the one along which rooms import most."""

    @cache
    def best(room: str) -> tuple[int, int, list[str]]:
        steps = [(best(other), rooms()[room][other]) for one, other, _ in WAY if one == room]
        ways = [(long + 1, much + n, [room, *path]) for (long, much, path), n in steps]
        return max(ways, default=(1, 0, [room]))

    return max(best(one) for one, _, _ in WAY)[2]


def beside() -> dict[str, int]:
    """The rooms that are not on the way, each with a row of its own: those that suit imports best.

    For each import, it counts by how many rows the room is too low to be above the imported one,
    and a quarter of the distance between the two. The first row, that of `STEP` and rows of more
    than two rooms are left free.

    Raises:
        LookupError: There are more rooms than rows.
    """
    rows = rows_of_the_way()
    row = {room: i for i, names in enumerate(rows) for room in names}
    free = [i for i, names in enumerate(rows) if i and len(names) < 3 and STEP not in names]
    others = [room for room in rooms() if room not in row and _neighbours(room)]
    if len(others) > len(free):
        raise LookupError(
            f"{len(others)} rooms beside the way have {len(free)} rows: WAY lacks some"
        )

    def cost(room: str, i: int) -> float:
        if not room:
            return 0
        near = [(row[one], n, one) for one, n in _neighbours(room).items() if one in row]
        above = sum(n * max(0, at - i + 1) for at, n, one in near if rooms()[one][room])
        below = sum(n * max(0, i - at + 1) for at, n, one in near if rooms()[room][one])
        return above + below + sum(n * abs(at - i) for at, n, _ in near) / 4

    in_row = dict(zip(free, others + [""] * (len(free) - len(others)), strict=True))
    for _ in range(len(free)):  # exchanges two while that is better
        for i, j in combinations(free, 2):
            one, other = in_row[i], in_row[j]
            if cost(one, j) + cost(other, i) < cost(one, i) + cost(other, j):
                in_row[i], in_row[j] = other, one
    return {room: i for i, room in in_row.items() if room}


def apart() -> list[str]:
    """The rooms that import no other and that no other imports."""
    return [room for room in rooms() if not _neighbours(room)]


def _neighbours(room: str) -> Counter[str]:
    """The rooms that a room imports or that import it, and how often."""
    return rooms()[room] + Counter({one: found[room] for one, found in rooms().items()})


def says(room: str) -> str:
    """What a room is about: the first sentence of its docstring, if `SAYS` has nothing shorter."""
    path = ROOT / room
    return SAYS.get(room) or about(path if path.is_file() else path / "__init__.py")


def led_to(room: str) -> set[str]:
    """All rooms to which arrows lead from this one."""
    found = {other for one, other, _ in WAY if one == room}
    return found.union(*map(led_to, found))
