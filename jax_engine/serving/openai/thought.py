"""How much of a turn was reasoning."""

from collections.abc import Iterable

from jax_engine.serving.openai.chat_call import ChatCall
from jax_engine.serving.openai.prompts import encoded


async def thought_tokens(call: ChatCall, thoughts: Iterable[str]) -> int:
    """The tokens of all reasoning: its texts, turned into tokens once more."""
    count = 0
    for text in thoughts:
        count += len(await encoded(call.service, text, add_special_tokens=False))
    return min(count, call.counts.usage().completion_tokens)
