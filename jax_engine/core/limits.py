"""What one step and one request may take, and which settings contradict each other."""

from dataclasses import dataclass
from typing import Literal

from jax_engine.core.block_manager import BlockManager
from jax_engine.errors import ConfigError

Scheduling = Literal["unified", "sosp", "sosp-mixed"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one step and one request may take; checked against each other.

    Attributes:
        max_num_seqs: Sequences running at once.
        max_num_batched_tokens: Tokens of one step.
        max_model_len: Tokens of one sequence, prompt and output.
        chunked_prefill: Whether a prompt may be spread over steps.
        long_prefill_token_threshold: Most prompt tokens of one sequence in a step; 0 for no limit.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    chunked_prefill: bool
    long_prefill_token_threshold: int

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ConfigError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} is below max_model_len "
                f"{self.max_model_len}, but prompts are computed whole: raise it, or use "
                'scheduling="unified" with enable_chunked_prefill=True'
            )
        if self.long_prefill_token_threshold > 0 and not self.chunked_prefill:
            raise ConfigError(
                f"long_prefill_token_threshold {self.long_prefill_token_threshold} needs "
                'scheduling="unified" with enable_chunked_prefill=True: set it to 0'
            )
        if self.long_prefill_token_threshold < 0:
            raise ConfigError(
                "long_prefill_token_threshold must be at least 0, "
                f"got {self.long_prefill_token_threshold}"
            )


def check_config(limits: Limits, manager: BlockManager, scheduling: Scheduling) -> None:
    """
    Raises:
        ConfigError: The SOSP modes cannot work with these limits or with prefix caching.
    """
    if scheduling == "unified":
        return
    if limits.max_num_batched_tokens < limits.max_num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens {limits.max_num_batched_tokens} is below max_num_seqs "
            f"{limits.max_num_seqs}, but with scheduling={scheduling!r} a step decodes every "
            "running sequence: raise it, or lower max_num_seqs"
        )
    if manager.enable_prefix_caching:
        raise ConfigError(
            f"enable_prefix_caching=True needs scheduling='unified', got {scheduling!r}: "
            "set it to False"
        )
