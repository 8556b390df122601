"""How much of a turn was reasoning."""

from collections.abc import Iterable

from jax_engine.serving.openai.chat_call import ChatCall


async def thought_tokens(call: ChatCall, thoughts: Iterable[str]) -> int:
    """The tokens of all reasoning: its texts, turned into tokens once more."""
    count, ids = 0, call.service.encoder.ids
    for text in thoughts:
        count += len(await ids(text, add_special_tokens=False, any_length=True))
    return min(count, call.counts.usage().completion_tokens)
