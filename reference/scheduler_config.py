"""What a scheduler can be told: its limits, and which of the three ways of scheduling it follows.

- "sosp":       a step is either prompts or one token for every sequence (vLLM in 2023)
- "sosp-mixed": one token for every sequence, and prompts in the same step (the paper's 4.5)
- "unified":    one token budget; a prompt may be computed in several chunks (vLLM V1)

>>> SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=8, max_model_len=16).chunks_prompts
True
>>> SchedulerConfig(4, 8, 16, scheduling="sosp")
Traceback (most recent call last):
ValueError: max_num_batched_tokens=8 must be at least 16 = max_model_len unless prompts are chunked
"""

from dataclasses import dataclass
from typing import Literal, Protocol

Scheduling = Literal["unified", "sosp", "sosp-mixed"]
Policy = Literal["fcfs", "priority"]
PreemptionMode = Literal["recompute", "swap"]


class PreemptionCosts(Protocol):
    """What preemption "auto" must know of a machine."""

    @property
    def seconds_per_block(self) -> float:
        """To move one KV block to CPU memory, or back."""

    @property
    def seconds_per_token(self) -> float:
        """To compute one token again."""


@dataclass(frozen=True)
class SchedulerConfig:
    """Limits of a step. Raises ValueError for settings under which some request could hang.

    Attributes:
        max_num_seqs: most sequences to keep room for in `running`.
        max_num_batched_tokens: most tokens in a step.
        max_model_len: most tokens in a sequence.
        preemption_mode: None: swap the groups that have forked, recompute the others; "auto": what
            takes less time, by `preemption_costs`.
        long_prefill_token_threshold: most tokens of one sequence in a step; 0: no such limit.
        admission_rule: False accepts requests that may hang; only to show why the rule is there.
        max_draft_tokens: most drafts in a step, of all sequences together; 0: nobody drafts.
        max_loras: adapters that can be on the device at a time; 0: requests with one are refused.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    scheduling: Scheduling = "unified"
    policy: Policy = "fcfs"
    preemption_mode: PreemptionMode | Literal["auto"] | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    admission_rule: bool = True
    preemption_costs: PreemptionCosts | None = None
    max_draft_tokens: int = 0
    max_loras: int = 0

    def __post_init__(self) -> None:
        for field, choices in (
            ("scheduling", ("unified", "sosp", "sosp-mixed")),
            ("policy", ("fcfs", "priority")),
            ("preemption_mode", (None, "recompute", "swap", "auto")),
        ):
            if getattr(self, field) not in choices:
                raise ValueError(f"{field}={getattr(self, field)!r} must be one of {choices}")
        if self.preemption_mode == "auto" and self.preemption_costs is None:
            raise ValueError("preemption_mode='auto' needs preemption_costs, got None")
        for field, least in (
            ("max_num_seqs", 1),
            ("max_num_batched_tokens", 1),
            ("max_model_len", 2),
            ("long_prefill_token_threshold", 0),
            ("max_draft_tokens", 0),
            ("max_loras", 0),
        ):
            if getattr(self, field) < least:
                raise ValueError(f"{field}={getattr(self, field)} must be at least {least}")
        if self.max_draft_tokens > 0 and self.scheduling != "unified":
            raise ValueError(
                f"max_draft_tokens={self.max_draft_tokens} needs scheduling='unified', "
                f"not {self.scheduling!r}"
            )
        self._check_that_a_step_can_hold_what_must_go_in_one()

    def _check_that_a_step_can_hold_what_must_go_in_one(self) -> None:
        budget = f"max_num_batched_tokens={self.max_num_batched_tokens} must be at least "
        if not self.chunks_prompts:
            if self.max_num_batched_tokens < self.max_model_len:
                raise ValueError(
                    f"{budget}{self.max_model_len} = max_model_len unless prompts are chunked"
                )
            if self.long_prefill_token_threshold > 0:
                raise ValueError(
                    f"long_prefill_token_threshold={self.long_prefill_token_threshold} must be 0 "
                    "unless prompts are chunked"
                )
        if self.scheduling != "unified" and self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(f"{budget}{self.max_num_seqs} = max_num_seqs in {self.scheduling}")

    @property
    def chunks_prompts(self) -> bool:
        """May a prompt be computed in several steps?"""
        return self.scheduling == "unified" and self.enable_chunked_prefill
