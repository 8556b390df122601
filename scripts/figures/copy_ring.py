"""A kernel that copies blocks ahead: one buffer, two, and a ring of three."""

from scripts.figures.svg import PHONE, Drawing

COPY, WORK = 2, 1  # units of time: a copy takes twice as long as the work on a block
UNIT, LANE, END = 35, 24, 10
NAMES = {1: "one buffer", 2: "two buffers", 3: "a ring of three"}


def spans(buffers: int) -> list[tuple[int, int, int]]:
    """(block, its buffer, when its copy begins). Work begins with the copy's end, in order."""
    found, free, idle = [], [0] * buffers, 0
    for block in range(2 * END):
        lane = block % buffers
        begin = max(free[lane], idle - COPY)
        work = begin + COPY
        free[lane] = idle = work + WORK
        found.append((block, lane, begin))
    return found


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 254, "Blocks on their way and in work, from left to right in time")
    y = 14.0
    for buffers, name in NAMES.items():
        done = sum(begin + COPY + WORK <= END for _, _, begin in spans(buffers))
        picture.text(4, y, f"{name}: {done} blocks in {END} units", anchor="start")
        for block, lane, begin in spans(buffers):
            top = y + 12 + lane * (LANE + 3)
            for start, length, fill in ((begin, COPY, "a"), (begin + COPY, WORK, "b")):
                if start + length <= END:
                    text = f"copy {block}" if fill == "a" else str(block)
                    picture.box(4 + start * UNIT, top, length * UNIT - 2, LANE, text, fill)
        y += 26 + buffers * (LANE + 3) + 6
    return {"copy-ring": picture}
