"""The limits of one step and one request, and the checks for contradictory settings."""

from dataclasses import dataclass

from jax_engine.errors import ConfigError
from jax_engine.modes import Scheduling


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
