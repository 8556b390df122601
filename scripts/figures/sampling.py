"""What the rules of sampling do to six tokens; the distributions are the oracle's."""

from types import SimpleNamespace

import numpy as np

from reference.sampling import distribution
from scripts.figures.svg import Drawing

WORDS = ["Paris", "a", "located", "the", "in", "Lyon"]
LOGITS = np.log([16.0, 8.0, 4.0, 2.0, 1.0, 1.0])
OFF = {
    "temperature": 1.0,
    "top_n_sigma": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "logit_bias": None,
    "min_tokens": 0,
    "stop_token_ids": None,
}
PANELS: list[tuple[str, dict[str, float]]] = [
    ("as it is", {}),
    ("temperature 0.5", {"temperature": 0.5}),
    ("temperature 2", {"temperature": 2.0}),
    ("top_k 3", {"top_k": 3}),
    ("top_p 0.7", {"top_p": 0.7}),
    ("min_p 0.1", {"min_p": 0.1}),
]
WIDTH, HEIGHT, ROW = 179, 146, 19  # of a panel, and of a line in it
NAME, BAR = 54, 84  # of a word, and of a probability of 0.9


def draw() -> dict[str, Drawing]:
    return {"sampling": _panels(3), "sampling-narrow": _panels(2)}


def _panels(columns: int) -> Drawing:
    """A line for each token: its word, a bar, its probability."""
    title = "The probabilities of six tokens under six settings"
    picture = Drawing(columns * WIDTH, len(PANELS) // columns * HEIGHT - 6, title)
    for i, (name, given) in enumerate(PANELS):
        x, y = i % columns * WIDTH + NAME, 12 + i // columns * HEIGHT
        picture.text(x, y, name, anchor="start")
        probabilities = distribution(LOGITS, SimpleNamespace(**(OFF | given)))
        for j, p in enumerate(probabilities):
            middle = y + (j + 1) * ROW
            width = max(3.0, float(p) / 0.9 * BAR)
            picture.text(x - 5, middle, WORDS[j], anchor="end")
            picture.box(x, middle - 7, width, 14, "", "a" if p else "alarm")
            says = f"{p:.2f}" if p else "cut"
            picture.text(x + width + 5, middle, says, anchor="start")
    return picture
