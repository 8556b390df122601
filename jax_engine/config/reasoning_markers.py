"""What models write around their reasoning: a table of markers, under vLLM's names of parsers."""

from dataclasses import dataclass
from typing import Literal

type Start = Literal["inside", "maybe", "closed"]


@dataclass(frozen=True)
class ReasoningMarkers:
    """The markers of one way to write reasoning.

    Attributes:
        inside: it begins with reasoning even if the prompt does not end with `begin`.
        or_begin, or_end: other words for `begin` and `end`; "": there are none.
        answer: what may stand around the answer; "": nothing does.
        other_ends: what else ends reasoning, such as the beginning of a call.
        close: what is written to end reasoning early; "": `end`.
    """

    begin: str = "<think>"
    end: str = "</think>"
    inside: bool = False
    or_begin: str = ""
    or_end: str = ""
    answer: str = ""
    answer_end: str = ""
    other_ends: tuple[str, ...] = ()
    close: str = ""

    @property
    def markers(self) -> tuple[str, ...]:
        """The texts that may be special tokens."""
        return tuple(filter(None, (self.begin, self.end, self.answer, self.answer_end)))

    def start(self, prompt: str) -> Start:
        """Whether a turn behind this prompt is inside of reasoning, or may begin it."""
        last = prompt.rstrip()
        if last.endswith(self.end):
            return "closed"
        return "inside" if self.inside or last.endswith(self.begin) else "maybe"


REASONING_MARKERS = {
    "deepseek_r1": ReasoningMarkers(inside=True),
    "deepseek_v3": ReasoningMarkers(),
    "ernie45": ReasoningMarkers(answer="<response>", answer_end="</response>"),
    "glm45": ReasoningMarkers(),
    "granite": ReasoningMarkers(
        "Here is my thought process:",
        "Here is my response:",
        or_begin="Here's my thought process:",
        or_end="Here's my response:",
    ),
    "kimi_k2": ReasoningMarkers(),
    "minimax_m2": ReasoningMarkers(inside=True),
    "mistral": ReasoningMarkers("[THINK]", "[/THINK]"),
    "olmo3": ReasoningMarkers(),
    "openai_gptoss": ReasoningMarkers(
        "<|channel|>analysis<|message|>",
        "<|channel|>final<|message|>",
        other_ends=("<|channel|>commentary", " to=functions."),
        close="<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "qwen3": ReasoningMarkers(),
    "seed_oss": ReasoningMarkers("<seed:think>", "</seed:think>"),
}
_IN_TEMPLATES = (  # the first that is found in a model's template
    ("<|channel|>analysis", "openai_gptoss"),
    ("</seed:think>", "seed_oss"),
    ("</response>", "ernie45"),
    ("</think>", "qwen3"),
    ("[/THINK]", "mistral"),
    ("Here is my thought process:", "granite"),
)


def reasoning_of_template(template: str | None) -> str | None:
    """The name of the markers that a template shows."""
    for text, name in _IN_TEMPLATES:
        if template is not None and text in template:
            return name
    return None
