"""Paging twice: an operating system misses one page, an engine's victim leaves whole."""

from collections.abc import Sequence

from scripts.figures.svg import Drawing

ROW = 24
ON_DISK = -1
HEADS = (("pages", "page table", "frames", "disk"), ("blocks", "block table", "pool", "CPU"))


def draw() -> dict[str, Drawing]:
    picture = Drawing(
        350, 480, "An operating system evicts a page, an engine all blocks of a sequence"
    )
    _system(picture, 10)
    _engine(picture, 255)
    return {"virtual-memory": picture}


def _system(picture: Drawing, y: float) -> None:
    """A process of four pages; page 2 is on the disk."""
    picture.text(10, y, "an operating system: processor and kernel", anchor="start")
    _heads(picture, y + 24, HEADS[0])
    _memory(picture, y + 40, {4: "a", 1: "a", 3: "a"}, {0: "a"})
    _mapped(picture, y + 40, "a", ["4", "1", "disk", "3"], [4, 1, ON_DISK, 3])
    picture.text(10, y + 200, "looked up in hardware (TLB); page 2 is missing:", anchor="start")
    picture.text(
        10, y + 217, "its next access faults, in the middle of the program", anchor="start"
    )


def _engine(picture: Drawing, y: float) -> None:
    """Sequence A has three blocks, all in the pool; B, a victim, two, all on the CPU."""
    picture.text(10, y, "an engine: kernels and block manager", anchor="start")
    _heads(picture, y + 24, HEADS[1])
    _memory(picture, y + 40, {4: "a", 1: "a", 3: "a"}, {0: "b", 1: "b"})
    _mapped(picture, y + 40, "a", ["4", "1", "3"], [4, 1, 3])
    picture.text(10, y + 40 + 1.5 * ROW, "A")
    picture.text(10, y + 40 + 4.3 * ROW, "B")
    _mapped(picture, y + 40 + 3.3 * ROW, "b", ["CPU 0", "CPU 1"], [])
    picture.text(
        10, y + 200, "looked up by the kernel, in each step; B is out whole", anchor="start"
    )
    picture.text(10, y + 217, "and in no step until all of it is back", anchor="start")


def _heads(picture: Drawing, y: float, texts: Sequence[str]) -> None:
    for x, text in zip((40, 125, 235, 320), texts, strict=True):
        picture.text(x, y, text)


def _memory(picture: Drawing, y: float, near: dict[int, str], far: dict[int, str]) -> None:
    """Six frames, three places behind them, each in the colour of who has it."""
    for frame in range(6):
        picture.box(215, y + frame * ROW, 40, ROW, str(frame), near.get(frame, "free"))
    for place in range(3):
        picture.box(300, y + place * ROW, 40, ROW, str(place), far.get(place, "free"))


def _mapped(
    picture: Drawing, y: float, fill: str, entries: Sequence[str], frames: Sequence[int]
) -> None:
    """Pages beside their entries, with arrows to the frames of those that have one."""
    for page, entry in enumerate(entries):
        at = y + page * ROW
        picture.box(20, at, 40, ROW, str(page), fill)
        picture.arrow(62, at + ROW / 2, 98, at + ROW / 2)
        picture.box(100, at, 50, ROW, entry, "alarm" if entry == "disk" else "paper")
        if frames and frames[page] != ON_DISK:
            picture.arrow(152, at + ROW / 2, 213, y + frames[page] * ROW + ROW / 2)
