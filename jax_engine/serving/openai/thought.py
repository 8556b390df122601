"""How much of a turn was reasoning."""

from jax_engine.serving.openai.blocks import Blocks
from jax_engine.serving.openai.chat_call import ChatCall
from jax_engine.serving.openai.prompts import encoded


async def thought_tokens(call: ChatCall, blocks: Blocks) -> int:
    """The tokens of all reasoning: its text, turned into tokens once more."""
    count = 0
    for block in blocks.all:
        if block.kind == "reasoning":
            ids = await encoded(call.service, block.text, add_special_tokens=False)
            count += len(ids)
    return min(count, call.counts.usage().completion_tokens)
