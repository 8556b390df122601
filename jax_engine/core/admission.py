"""The admission rule: only what provably finishes is accepted, so that no request ever hangs.

The published system hangs on a request that needs more blocks, sequences or tokens than the engine
has (or the whole engine aborts). Here it is refused when it is added, with both numbers.
"""

from jax_engine.core.block_manager import BlockManager
from jax_engine.core.limits import Limits
from jax_engine.core.sequence import SequenceGroup
from jax_engine.errors import InvalidRequestError, RequestTooLargeError


def max_blocks(group: SequenceGroup, block_size: int, max_model_len: int) -> int:
    """U: the most blocks the group's sequences ever fill, shared prompt blocks counted once.

    The last token of a sequence is never fed to the model, so it needs no slot.
    """
    max_tokens = group.params.max_tokens
    if max_tokens is None:
        max_tokens = max_model_len - group.prompt_len
    per_seq = -(-min(group.prompt_len + max_tokens - 1, max_model_len) // block_size)
    shared = group.prompt_len // block_size if group.num_samples > 1 else 0
    return shared + group.num_samples * (per_seq - shared)


def check_request(group: SequenceGroup, limits: Limits, manager: BlockManager) -> None:
    """Refuses what could not finish even with the engine to itself.

    Beside U there must be room for the watermark and for one more block a sequence: the head-room
    that a decode step and a swap-in ask for. (Where prompts are computed whole, `Limits` has made
    sure that any prompt fits into a step.)

    Raises:
        InvalidRequestError: The prompt is empty.
        RequestTooLargeError: Prompt, sequences or blocks exceed what the engine has.
    """
    name, k = f"request {group.request_id!r}", group.num_samples
    if group.prompt_len < 1:
        raise InvalidRequestError(f"{name}: prompt_token_ids must hold at least 1 token, got 0")
    if group.prompt_len > limits.max_model_len - 1:
        raise RequestTooLargeError(
            f"{name}: the prompt has {group.prompt_len} tokens, max_model_len "
            f"{limits.max_model_len} allows {limits.max_model_len - 1} and one of output: "
            "shorten the prompt, or raise max_model_len"
        )
    if k > limits.max_num_seqs:
        raise RequestTooLargeError(
            f"{name}: best_of (or n) asks for {k} sequences, max_num_seqs is "
            f"{limits.max_num_seqs}: lower best_of, or raise max_num_seqs"
        )
    need = max_blocks(group, manager.block_size, limits.max_model_len) + k
    need += manager.watermark_blocks
    if need > manager.gpu.num_blocks:
        raise RequestTooLargeError(
            f"{name}: {k} sequence(s) of {group.prompt_len} prompt tokens and max_tokens "
            f"{group.params.max_tokens} may need {need} KV blocks (head-room included), the "
            f"engine has num_gpu_blocks {manager.gpu.num_blocks}: lower max_tokens or best_of, "
            "shorten the prompt, or give the KV cache more memory"
        )
