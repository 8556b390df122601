"""The table of ways in which models write their reasoning, under vLLM's names."""

from jax_engine.config.reasoning_markers import REASONING_MARKERS
from jax_engine.serving.parsers.harmony_parsers import HarmonyStyle
from jax_engine.serving.parsers.reasoning_parser import ReasoningStyle

REASONING = {
    name: (HarmonyStyle if name == "openai_gptoss" else ReasoningStyle)(**vars(markers))
    for name, markers in REASONING_MARKERS.items()
}
