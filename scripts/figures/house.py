"""The rooms of the code and a request's way through them, drawn from the folders and the imports.

A room that is not drawn, one that is gone, or a way between rooms that do not know each other is an
error: the picture cannot go stale. The narrow one has the same rooms in a phone's width.
"""

import ast
from pathlib import Path
from typing import NamedTuple

from scripts.figures.svg import PHONE, Drawing

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 640, 640
STEP = "jax_engine/step.py"


class Room(NamedTuple):
    """A folder, or a file, and where it is drawn."""

    x: float
    y: float
    w: float
    says: str
    fill: str = "free"


ROOMS = {
    "jax_engine/commands": Room(20, 20, 120, "jax-engine serve"),
    "jax_engine/serving": Room(180, 20, 130, "HTTP, AsyncLLM", "a"),
    "jax_engine/lora": Room(330, 8, 130, "adapters"),
    "jax_engine": Room(20, 100, 260, "LLM, SamplingParams, outputs", "a"),
    "jax_engine/compat": Room(330, 55, 130, "vLLM's other names"),
    "jax_engine/parallel": Room(330, 102, 130, "several devices"),
    "jax_engine/engine": Room(20, 180, 260, "requests, a step, outputs", "a"),
    "jax_engine/tokenization": Room(330, 149, 130, "text and tokens"),
    "jax_engine/guided": Room(330, 198, 62, "grammars"),
    "jax_engine/config": Room(398, 198, 62, "settings"),
    "jax_engine/quantize": Room(330, 247, 62, "to codes"),
    "jax_engine/processes": Room(398, 247, 62, "processes"),
    "jax_engine/core": Room(20, 260, 164, "scheduler, blocks, cache", "a"),
    "jax_engine/speculation": Room(194, 260, 86, "who guesses", "a"),
    STEP: Room(20, 340, 440, "Step and StepResult: numbers, no objects", "b"),
    "jax_engine/worker": Room(20, 420, 120, "one compiled step", "c"),
    "jax_engine/sampling": Room(20, 500, 120, "the sampler", "c"),
    "jax_engine/models": Room(180, 420, 120, "families, loaders", "c"),
    "jax_engine/layers": Room(180, 500, 120, "attention, linear", "c"),
    "jax_engine/weights": Room(340, 420, 120, "formats", "c"),
    "jax_engine/operations": Room(340, 500, 120, "one for a device", "c"),
    "pallas_kernels": Room(20, 580, 205, "GPUs, and XLA for all", "d"),
    "cpu_kernels": Room(255, 580, 205, "CPUs", "d"),
    "reference": Room(500, 20, 120, "the oracle: NumPy"),
}
# The way of a request: from, to, and what goes there. One of the two rooms imports the other.
WAY = (
    ("jax_engine/commands", "jax_engine/serving", ""),
    ("jax_engine/serving", "jax_engine", "messages"),
    ("jax_engine", "jax_engine/engine", "Request"),
    ("jax_engine/engine", "jax_engine/tokenization", ""),
    ("jax_engine/engine", "jax_engine/guided", ""),
    ("jax_engine/engine", "jax_engine/core", "SequenceGroup"),
    ("jax_engine/core", STEP, "make_step"),
    (STEP, "jax_engine/worker", "launch, collect"),
    ("jax_engine/worker", "jax_engine/models", ""),
    ("jax_engine/worker", "jax_engine/sampling", ""),
    ("jax_engine/models", "jax_engine/layers", ""),
    ("jax_engine/models", "jax_engine/weights", ""),
    ("jax_engine/layers", "jax_engine/operations", ""),
    ("jax_engine/layers", "pallas_kernels", ""),
    ("jax_engine/operations", "cpu_kernels", ""),
)
# On a phone: where each is, in its height above unless said, and what it says if that is shorter.
NARROW = {
    "jax_engine/commands": (4, 112, ""),
    "jax_engine/serving": (126, 100, ""),
    "jax_engine/lora": (236, 118, ""),
    "jax_engine": (4, 186, "LLM, parameters, outputs"),
    "jax_engine/compat": (222, 132, ""),
    "jax_engine/parallel": (222, 132, ""),
    "jax_engine/engine": (4, 186, ""),
    "jax_engine/tokenization": (222, 132, ""),
    "jax_engine/guided": (222, 64, ""),
    "jax_engine/config": (290, 64, ""),
    "jax_engine/quantize": (222, 64, ""),
    "jax_engine/processes": (290, 64, ""),
    "jax_engine/core": (4, 100, "plans, blocks"),
    "jax_engine/speculation": (108, 82, ""),
    STEP: (4, 350, ""),
    "jax_engine/worker": (4, 104, "compiled step"),
    "jax_engine/sampling": (4, 104, ""),
    "jax_engine/models": (127, 104, ""),
    "jax_engine/layers": (127, 104, ""),
    "jax_engine/weights": (250, 104, ""),
    "jax_engine/operations": (250, 104, ""),
    "pallas_kernels": (4, 166, ""),
    "cpu_kernels": (188, 166, ""),
    "reference": (4, 350, "the oracle: NumPy, shares no code"),
}
TALL = 44
TITLE = "The rooms of the code, and a request's way through them"


def draw() -> dict[str, Drawing]:
    _check()
    wide = Drawing(WIDTH, HEIGHT, TITLE)
    _rooms(wide, ROOMS, 294, 10)
    wide.line([(480, 15), (480, HEIGHT - 15)], ink="faint", dash="4 4")
    for i, line in enumerate(("shares no code:", "tests hold the", "two together")):
        wide.text(560, 280 + 15 * i, line, size=11)
    narrow, below = Drawing(PHONE, HEIGHT + 86, TITLE), HEIGHT + 16
    rooms = {
        name: Room(x, ROOMS[name].y, w, says or ROOMS[name].says, ROOMS[name].fill)
        for name, (x, w, says) in NARROW.items()
    }
    _rooms(narrow, rooms | {"reference": rooms["reference"]._replace(y=below)}, 204, 12)
    narrow.line([(4, below - 8), (354, below - 8)], ink="faint", dash="4 4")
    narrow.text(PHONE / 2, below + TALL + 12, "tests hold the two together")
    return {"house": wide, "house-narrow": narrow}


def _rooms(picture: Drawing, rooms: dict[str, Room], back: float, size: float) -> None:
    """The rooms and the ways; a step's result comes back at x = `back`."""
    for one, other, what in WAY:
        x1, y1, x2, y2 = _between(rooms[one], rooms[other])
        picture.arrow(x1, y1, x2, y2)
        if what:
            picture.text(x1 + 8, (y1 + y2) / 2, what, anchor="start", size=size)
    picture.line([(back, 340), (back, 220)], width=1)
    picture.arrow(back, 220, back - 12, 220)
    picture.text(back + 8, 310, "StepResult", anchor="start", size=size)
    for name, room in rooms.items():
        tall = HEIGHT - 40 if name == "reference" and room.y == 20 else TALL
        picture.box(room.x, room.y, room.w, tall, fill=room.fill)
        middle = room.x + room.w / 2
        own = name if name == STEP or "/" not in name else name.removeprefix("jax_engine/")
        picture.text(middle, room.y + 15, own, size=12)
        picture.text(middle, room.y + 31, room.says, size=size)


def _between(one: Room, other: Room) -> tuple[float, float, float, float]:
    """From edge to edge: straight down where one is above the other, else across."""
    if other.y >= one.y + TALL:
        left, right = max(one.x, other.x), min(one.x + one.w, other.x + other.w)
        x = (left + right) / 2 if left < right else one.x + one.w
        return (
            (x if left < right else one.x + one.w / 2),
            one.y + TALL,
            (x if left < right else other.x + other.w / 2),
            other.y,
        )
    return one.x + one.w, one.y + TALL / 2, other.x, other.y + TALL / 2


def _check() -> None:
    """
    Raises:
        LookupError: The picture shows what is not there, or lacks what is.
    """
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for package in ("jax_engine", "pallas_kernels", "cpu_kernels", "reference")
        for path in ROOT.glob(f"{package}/__init__.py")
    }
    folders |= {f"jax_engine/{path.parent.name}" for path in ROOT.glob("jax_engine/*/__init__.py")}
    if folders ^ (set(ROOMS) - {STEP}):
        raise LookupError(f"rooms drawn or missing by mistake: {folders ^ (set(ROOMS) - {STEP})}")
    for one, other, _ in WAY:
        if not (_knows(one, other) or _knows(other, one)):
            raise LookupError(f"there is no way from {one} to {other}: neither imports the other")


def _knows(one: str, other: str) -> bool:
    wanted = other.removesuffix(".py").replace("/", ".")
    return any(name == wanted or name.startswith(f"{wanted}.") for name in _imports(one))


def _imports(room: str) -> set[str]:
    """Modules that a room's files import; of `jax_engine` itself only its own files count."""
    path = ROOT / room
    if room.endswith(".py"):
        files = [path]
    else:
        files = sorted(path.glob("*.py") if room == "jax_engine" else path.rglob("*.py"))
    names: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
    return names
