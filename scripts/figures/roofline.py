"""The roofline of an H100: what it reaches at each intensity, prefill and decode on it."""

from scripts.figures.plot import Axis, draw_axes, draw_curve
from scripts.figures.svg import Drawing

OPERATIONS, BANDWIDTH = 989e12, 3.35e12  # bfloat16 a second; bytes a second (H100 SXM's data sheet)
WORK = (
    ("decode, 1 request", 1),
    ("decode, 32", 32),
    ("prefill, 500", 500),
)


def draw() -> dict[str, Drawing]:
    picture = Drawing(400, 300, "What an H100 reaches at each intensity: the roofline")
    x = Axis([1, 10, 100, 1000, 10000], 50, 380, logarithmic=True)
    y = Axis([1, 10, 100, 1000], 240, 40, logarithmic=True)
    draw_axes(
        picture,
        x,
        y,
        ("", "operations a byte that is read", "10^12 operations a second"),
        grid=True,
    )
    ridge = OPERATIONS / BANDWIDTH
    points = [(a, min(a * BANDWIDTH, OPERATIONS) / 1e12) for a in (1, ridge, 10000)]
    draw_curve(picture, x, y, points, 0)
    picture.text(x.at(4.5), y.at(60), "memory-bound", size=12)
    picture.text(x.at(2600), y.at(330), "compute-bound", size=12)
    for number, (name, intensity) in enumerate(WORK, 1):
        reached = min(intensity * BANDWIDTH, OPERATIONS) / 1e12
        at = x.at(intensity), y.at(reached)
        picture.dot(*at, f"line-{number + 1}")
        picture.text(at[0] + 6, at[1] + 14, name, anchor="start", size=12)
    return {"roofline": picture}
