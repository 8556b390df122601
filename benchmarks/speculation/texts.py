"""Conversations whose answers copy more or less: code edits, quotes, second turns, chat.

Functions come from Python's library and prose from this project's tutorial.
"""

import colorsys
import fnmatch
import inspect
import random
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

type Messages = list[dict[str, Any]]

PROSE = Path(__file__).parents[1] / "data" / "prose.txt"
PARAGRAPHS = 6
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    colorsys.rgb_to_hls,
    textwrap.shorten,
    fnmatch.translate,
    random.Random.shuffle,
    textwrap.indent,
    colorsys.hsv_to_rgb,
)
QUESTIONS = (
    "How do plants turn sunlight into food? Explain it to a child.",
    "Write a short poem about a lighthouse keeper in winter.",
    "What should I look at before I buy a used bicycle?",
    "Give me a recipe for a simple vegetable soup, with quantities.",
    "Why did the Roman Republic end? Answer in two paragraphs.",
    "Plan a weekend in a small town by the sea for two people.",
)
AGAIN = "Write your answer again, word for word, but with a title above it."


def _asked(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def code_edits() -> list[Messages]:
    """A function, to be written again with another name."""
    found = []
    for function in FUNCTIONS:
        source = textwrap.dedent(inspect.getsource(function))
        name = function.__name__
        found.append(
            _asked(
                f"Rename the function `{name}` to `my_{name}` and change nothing else. "
                f"Answer with the whole code.\n\n```python\n{source}```"
            )
        )
    return found


def quotes() -> list[Messages]:
    """A passage, to be summed up with sentences of its own."""
    text = PROSE.read_text("utf-8").split("\n\n")
    passages = [one for one in text if 400 < len(one) < 900][:PARAGRAPHS]
    return [
        _asked(f"Quote the two most important sentences of this text:\n\n{one}") for one in passages
    ]


def chat() -> list[Messages]:
    """Questions that people ask, which have no text to copy from."""
    return [_asked(one) for one in QUESTIONS]


def second_turns(answers: list[str]) -> list[Messages]:
    """The chat goes on: the answer is wanted again."""
    return [
        [*_asked(question), {"role": "assistant", "content": answer}, *_asked(AGAIN)]
        for question, answer in zip(QUESTIONS, answers, strict=True)
    ]
