"""Static against continuous batching, the three queues, and how a step is planned (paper 4.5)."""

from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from scripts.figures.svg import Drawing
from scripts.tutorial.stepping import request, step

LENGTHS = {"A": 6, "B": 2, "C": 4, "D": 3, "E": 3}
FILLS = {"A": "a", "B": "b", "C": "c", "D": "d", "E": "a"}
Rows = list[list[str]]


def static_batches() -> Rows:
    """Two places; a batch ends with its longest request."""
    rows: Rows = [[], []]
    names = list(LENGTHS)
    for pair in (names[0:2], names[2:4], names[4:5]):
        longest = max(LENGTHS[name] for name in pair)
        for place, row in enumerate(rows):
            name = pair[place] if place < len(pair) else ""
            row += [name] * LENGTHS.get(name, 0)
            row += [""] * (longest - LENGTHS.get(name, 0))
    return rows


def continuous_batches() -> Rows:
    """What the reference's scheduler does with two places, step by step."""
    scheduler = Scheduler(
        BlockManager(4, 40), max_num_seqs=2, max_num_batched_tokens=16, max_model_len=16
    )
    for name, length in LENGTHS.items():
        scheduler.add_group(request(name, 1, length))
    places: dict[str, int] = {}
    rows: Rows = [[], []]
    while scheduler.has_unfinished():
        names = [entry.group.request_id for entry in step(scheduler).scheduled]
        for name in names:
            others = {places.get(other) for other in names if other != name}
            places.setdefault(name, 0 if 0 not in others else 1)
            rows[places[name]].append(name)
    return rows


def batching() -> Drawing:
    picture = Drawing(380, 186, "Five requests on two places: 13 steps in batches, 9 continuously")
    for i, (title, rows) in enumerate(
        (("batch by batch", static_batches()), ("continuously", continuous_batches()))
    ):
        y = 10 + 96 * i
        picture.text(10, y, f"{title}: {len(rows[0])} steps", anchor="start")
        for place, row in enumerate(rows):
            for time, name in enumerate(row):
                fill = FILLS.get(name, "free")
                picture.box(10 + 28 * time, y + 14 + 28 * place, 26, 24, name, fill)
    return picture


def queues() -> Drawing:
    picture = Drawing(380, 216, "A request waits, runs, may be preempted, and ends")
    picture.box(10, 30, 96, 34, "waiting", "b")
    picture.box(150, 30, 96, 34, "running", "a")
    picture.box(150, 150, 96, 34, "swapped", "d")
    picture.box(290, 30, 80, 34, "finished", "c")
    picture.arrow(108, 40, 147, 40)
    picture.arrow(148, 56, 109, 56)
    picture.arrow(248, 47, 287, 47)
    picture.arrow(184, 66, 184, 147)
    picture.arrow(212, 148, 212, 67)
    picture.text(128, 18, "admit", size=11)
    picture.text(128, 78, "recompute", size=11)
    picture.text(178, 106, "swap out", anchor="end", size=11)
    picture.text(218, 106, "swap in", anchor="start", size=11)
    picture.text(58, 82, "no blocks", size=11)
    picture.text(198, 200, "blocks on the CPU", size=11)
    picture.text(198, 18, "blocks on the GPU", size=11, anchor="start")
    picture.text(330, 82, "no blocks", size=11)
    return picture


def draw() -> dict[str, Drawing]:
    return {"batching": batching(), "queues": queues()}
