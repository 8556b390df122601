"""The table of ways in which models write their reasoning, under vLLM's names."""

from jax_engine.serving.parsers.harmony_parsers import HarmonyStyle
from jax_engine.serving.parsers.reasoning_parser import ReasoningStyle

REASONING = {
    "deepseek_r1": ReasoningStyle(inside=True),
    "deepseek_v3": ReasoningStyle(),
    "ernie45": ReasoningStyle(answer="<response>", answer_end="</response>"),
    "glm45": ReasoningStyle(),
    "granite": ReasoningStyle(
        "Here is my thought process:",
        "Here is my response:",
        or_begin="Here's my thought process:",
        or_end="Here's my response:",
    ),
    "kimi_k2": ReasoningStyle(),
    "minimax_m2": ReasoningStyle(inside=True),
    "mistral": ReasoningStyle("[THINK]", "[/THINK]"),
    "olmo3": ReasoningStyle(),
    "openai_gptoss": HarmonyStyle(),
    "qwen3": ReasoningStyle(),
    "seed_oss": ReasoningStyle("<seed:think>", "</seed:think>"),
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
    """The name of the style whose markers a template shows."""
    for text, name in _IN_TEMPLATES:
        if template is not None and text in template:
            return name
    return None
