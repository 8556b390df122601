"""The admission rule: a request is accepted only if it provably finishes, so that none ever hangs.

The published system hangs, or aborts, on a request that needs more blocks, sequences or tokens than
the engine has. This engine refuses such a request when it is added, and names both numbers. A
request for more samples than fit runs in parts. Each part fits and finishes, so the request does.

A request with a LoRA adapter needs one slot for it, and there is at least one, else it is refused.
Only running groups pin slots, and a group pins one at most. So a group that waits for a slot waits
for running groups alone, which finish by the same rule, and while it waits nobody is admitted in
its place. When none runs, a slot can be had: adapters add a wait, and no way to hang.

`Limits` are those of one step and one request. Contradictory settings are refused with them.
"""

from dataclasses import dataclass

from jax_engine.config.engine_config import Scheduling
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.errors import ConfigError, InvalidRequestError, RequestTooLargeError


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one step and one request, checked against each other here only.

    Attributes:
        max_num_seqs: Most sequences running at once.
        max_num_batched_tokens: Most tokens of one step.
        max_model_len: Most tokens of one sequence, prompt and output.
        scheduling: "unified", "sosp" or "sosp-mixed".
        chunked_prefill: Whether a prompt may be split over several steps.
        long_prefill_token_threshold: Most prompt tokens of one sequence in a step; 0 for no limit.
        max_loras: Most LoRA adapters of running requests; 0: none is accepted.

    Raises:
        ConfigError: A limit is too small, or contradicts another.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    scheduling: Scheduling = "unified"
    chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    max_loras: int = 0

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("long_prefill_token_threshold", "max_loras"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")
        self._check_budget()
        if self.long_prefill_token_threshold > 0 and not self.chunked_prefill:
            raise ConfigError(
                f"long_prefill_token_threshold {self.long_prefill_token_threshold} needs "
                'scheduling="unified" with enable_chunked_prefill=True: set it to 0'
            )

    def _check_budget(self) -> None:
        """Checks that a step has room for all that cannot wait for another step."""
        budget = self.max_num_batched_tokens
        if not self.chunked_prefill and budget < self.max_model_len:
            raise ConfigError(
                f"max_num_batched_tokens must be at least max_model_len ({self.max_model_len}) "
                f"where prompts are computed whole, got {budget}: raise it, lower max_model_len, "
                'or use scheduling="unified" with enable_chunked_prefill=True'
            )
        if self.scheduling != "unified" and budget < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens must be at least max_num_seqs ({self.max_num_seqs}) with "
                f"scheduling={self.scheduling!r}, where a step decodes every running sequence, got "
                f"{budget}: raise it, or lower max_num_seqs"
            )


def check_drafts(max_draft_tokens: int, scheduling: Scheduling) -> None:
    """
    Raises:
        ConfigError: An SOSP mode, whose steps decode one token a sequence, is asked for drafts.
    """
    if max_draft_tokens and scheduling != "unified":
        raise ConfigError(
            f"speculative_config needs scheduling='unified', got {scheduling!r}: leave one of "
            "them out"
        )


def check_prefix_caching(enabled: bool, scheduling: Scheduling) -> None:
    """
    Raises:
        ConfigError: It is enabled in an SOSP mode, which has no prefix cache.
    """
    if enabled and scheduling != "unified":
        raise ConfigError(
            f"enable_prefix_caching=True needs scheduling='unified', got {scheduling!r}: "
            "set it to False"
        )


def blocks_of_one(group: SequenceGroup, block_size: int, max_model_len: int) -> tuple[int, int]:
    """The most blocks that a sequence ever fills, and how many of them its siblings share.

    The last token of a sequence is never fed to the model, so it needs no slot.
    """
    max_tokens = group.params.max_tokens
    if max_tokens is None:
        max_tokens = max_model_len - group.prompt_len
    per_seq = -(-min(group.prompt_len + max_tokens - 1, max_model_len) // block_size)
    return per_seq, group.prompt_len // block_size


def prompt_too_long(
    count: int, max_model_len: int, room: int = 1, least: str = ""
) -> RequestTooLargeError:
    """The error of a prompt that is too long, or leaves no room for a token of output.

    Args:
        room: The tokens of output that must fit: 1, or 0 of a request that draws none.
        least: "at least ", if so many tokens are known and there may be more.
    """
    allowed = f"{max_model_len - 1} and one of output" if room else str(max_model_len)
    return RequestTooLargeError(
        f"the prompt has {least}{count} tokens, max_model_len {max_model_len} allows {allowed}: "
        "shorten the prompt, or raise max_model_len"
    )


def check_request(group: SequenceGroup, limits: Limits, manager: BlockManager) -> int:
    """Refuses a request that could not finish even with the engine to itself.

    The GPU must have room for the blocks that the request's sequences fill, for the watermark, and
    for one more block per sequence: the head-room that a decode step and a swap-in need. (Where
    prompts are computed whole, `Limits` has made sure that any prompt fits into a step.)

    Returns:
        How many of its samples can run at a time.

    Raises:
        InvalidRequestError: The prompt is empty, or there is no slot for an adapter.
        RequestTooLargeError: Prompt, sequences or blocks exceed what the engine has.
    """
    name = f"request {group.request_id!r}"
    if group.prompt_len < 1:
        raise InvalidRequestError(f"{name}: prompt_token_ids must hold at least 1 token, got 0")
    if group.adapter is not None and not limits.max_loras:
        raise InvalidRequestError(
            f"{name}: lora_request must be None, got an adapter: the engine's device has no slots "
            "for adapters (max_loras)"
        )
    room = 0 if group.params.drops_output else 1
    if group.prompt_len > limits.max_model_len - room:
        problem = prompt_too_long(group.prompt_len, limits.max_model_len, room)
        raise RequestTooLargeError(f"{name}: {problem}")
    beams = 1 if group.beam is None else group.num_samples
    if beams > limits.max_num_seqs:
        raise RequestTooLargeError(
            f"{name}: best_of (or n) asks for {beams} beams, max_num_seqs is "
            f"{limits.max_num_seqs}: lower best_of, or raise max_num_seqs"
        )
    per_seq, shared = blocks_of_one(group, manager.block_size, limits.max_model_len)
    for_each = per_seq - shared + 1  # with its head-room
    need = manager.watermark_blocks + shared + beams * for_each
    if need > manager.gpu.num_blocks:
        what, also = ("a sample", "") if group.beam is None else (f"{beams} beams", " or best_of")
        raise RequestTooLargeError(
            f"{name}: {what} of {group.prompt_len} prompt tokens and max_tokens "
            f"{group.params.max_tokens} may need {need} KV blocks (head-room included), the "
            f"engine has num_gpu_blocks {manager.gpu.num_blocks}: lower max_tokens{also}, shorten "
            "the prompt, or give the KV cache more memory"
        )
    fitting = (manager.gpu.num_blocks - manager.watermark_blocks - shared) // for_each
    return min(group.num_samples, limits.max_num_seqs, fitting)
