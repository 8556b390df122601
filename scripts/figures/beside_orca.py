"""Batches of Orca and of paging, step by step; and a step's milliseconds under both."""

from itertools import groupby

from reference.cost_model import TABLE_1
from scripts.figures.svg import FAINT, Drawing
from scripts.tutorial.batch_sizes import batch_sizes, systems

SIZE = 15
PARTS = (("weights", "free"), ("products", "b"), ("host", "c"), ("attention", "a"))


def draw() -> dict[str, Drawing]:
    return {"orca-batches": draw_batches(), "slower-kernel": draw_steps()}


def draw_batches() -> Drawing:
    """A column for each step, as high as its batch."""
    picture = Drawing(450, 330, "Requests in each step: fixed by reservations, or free to grow")
    left, wide, high = 20, 1.65, 5
    y = 0.0
    for (name, server), fill in zip(systems().items(), ("alarm", "b", "a"), strict=True):
        sizes = batch_sizes(server)
        y += 30 + high * max(sizes)
        said = f"{name}: {sum(sizes) / len(sizes):.1f} requests in each of {len(sizes)} steps"
        picture.text(left, y - high * max(sizes) - 14, said, anchor="start", size=SIZE)
        step = 0
        for size, steps in ((size, len(list(run))) for size, run in groupby(sizes)):
            picture.box(left + step * wide, y - size * high, steps * wide, size * high, fill=fill)
            step += steps
        picture.line([(left, y), (430, y)], FAINT, width=1)
        y += 12
    picture.text(left, y + 14, "steps, from left to right", anchor="start", size=SIZE)
    picture.height = y + 30
    return picture


def draw_steps() -> Drawing:
    """What a decoding step of OPT-13B is made of, for 7 requests and for 30."""
    picture = Drawing(450, 240, "A step with the slower kernel and 30 requests, beside one with 7")
    left, scale = 20, 8.6
    rows = (
        ("7 requests, contiguous kernel", False, 7),
        ("7 requests, paged kernel", True, 7),
        ("30 requests, paged kernel", True, 30),
    )
    for row, (name, paged, requests) in enumerate(rows):
        cost = TABLE_1["OPT-13B"].step_cost(paged=paged)
        times = (
            cost.per_step,
            requests * cost.per_token,
            requests * cost.per_sequence,
            requests * 500 * cost.per_context_token,
        )
        y = 14 + row * 62
        said = f"{name}: {requests / sum(times):.0f} tokens/s"
        picture.text(left, y, said, anchor="start", size=SIZE)
        x = float(left)
        for seconds, (_, fill) in zip(times, PARTS, strict=True):
            picture.box(x, y + 14, 1000 * seconds * scale, 26, fill=fill)
            x += 1000 * seconds * scale
    for i, (name, fill) in enumerate(PARTS):
        picture.box(left + i * 104, 206, 16, 16, fill=fill)
        picture.text(left + 22 + i * 104, 215, name, anchor="start", size=SIZE)
    return picture
