"""Host and device taking turns, and overlapped; not to scale."""

from scripts.figures.svg import PHONE, Drawing

HOST, DEVICE = 44, 58
STEPS = 3
FILLS = ["a", "b", "c"]


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 230, "The host plans the next step while the device computes this one")
    picture.text(4, 14, "taking turns", anchor="start")
    _rows(picture, 28, [i * (HOST + DEVICE) for i in range(STEPS)])
    picture.text(4, 130, "overlapped", anchor="start")
    _rows(picture, 144, [0, HOST, HOST + DEVICE], overlapped=True)
    return {"overlap": picture}


def _rows(picture: Drawing, y: float, plans: list[int], *, overlapped: bool = False) -> None:
    """`plans`: when the host begins to plan each step."""
    left = 49
    picture.text(43, y + 15, "host", anchor="end")
    picture.text(43, y + 49, "device", anchor="end")
    for step, start in enumerate(plans):
        picture.box(left + start, y, HOST, 30, f"plan {step + 1}", FILLS[step])
        begin = HOST + step * DEVICE if overlapped else start + HOST
        picture.box(left + begin, y + 34, DEVICE, 30, f"run {step + 1}", FILLS[step])
