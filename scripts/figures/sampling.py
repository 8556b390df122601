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
HEIGHT, BAR = 120, 24


def draw() -> dict[str, Drawing]:
    picture = Drawing(600, 370, "The probabilities of six tokens under six settings")
    for i, (title, given) in enumerate(PANELS):
        x, base = 24 + i % 3 * 194, 140 + i // 3 * 182
        picture.text(x, base - HEIGHT - 8, title, anchor="start")
        probabilities = distribution(LOGITS, SimpleNamespace(**(OFF | given)))
        for j, p in enumerate(probabilities):
            left = x + j * (BAR + 4)
            height = float(p) / 0.9 * HEIGHT
            if p > 0:
                picture.box(left, base - height, BAR, height, "", "a")
            else:
                picture.box(left, base - 3, BAR, 3, "", "alarm")
            picture.text(left + BAR / 2, base - height - 8, f"{p:.2f}" if p else "cut", size=9)
            picture.text(left + BAR / 2, base + 10, WORDS[j], size=9)
    return {"sampling": picture}
