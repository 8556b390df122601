"""Static against continuous batching, the three queues, and how a step is planned (paper 4.5)."""

from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from scripts.figures.svg import PHONE, Drawing
from scripts.tutorial.stepping import request, step

LENGTHS = {"A": 6, "B": 2, "C": 4, "D": 3, "E": 3}
FILLS = {"A": "a", "B": "b", "C": "c", "D": "d", "E": "e"}
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
    picture = Drawing(
        PHONE, 186, "Five requests on two places: 13 steps in batches, 9 continuously"
    )
    for i, (how, rows) in enumerate(
        (("batch by batch", static_batches()), ("continuously", continuous_batches()))
    ):
        y = 10 + 96 * i
        picture.text(5, y, f"{how}: {len(rows[0])} steps", anchor="start")
        for place, row in enumerate(rows):
            for time, name in enumerate(row):
                fill = FILLS.get(name, "free")
                picture.box(5 + 27 * time, y + 14 + 28 * place, 24, 24, name, fill)
    return picture


def queues() -> Drawing:
    """Each queue, with where the blocks of its requests are."""
    picture = Drawing(PHONE, 180, "A request waits, runs, may be preempted, and ends")
    for x, y, width, name, blocks, fill in (
        (2, 22, 66, "waiting", "no blocks", "b"),
        (144, 22, 122, "running", "blocks on the GPU", "a"),
        (144, 128, 122, "swapped", "blocks on the CPU", "d"),
        (290, 22, 66, "finished", "no blocks", "c"),
    ):
        picture.box(x, y, width, 48, fill=fill)
        picture.text(x + width / 2, y + 15, name)
        picture.text(x + width / 2, y + 34, blocks)
    picture.arrow(70, 36, 142, 36)
    picture.text(106, 22, "admit")
    picture.arrow(142, 56, 70, 56)
    picture.text(106, 72, "recompute")
    picture.arrow(268, 46, 288, 46)
    picture.arrow(182, 72, 182, 126)
    picture.text(174, 99, "swap out", anchor="end")
    picture.arrow(222, 126, 222, 72)
    picture.text(230, 99, "swap in", anchor="start")
    return picture


def draw() -> dict[str, Drawing]:
    return {"batching": batching(), "queues": queues()}
