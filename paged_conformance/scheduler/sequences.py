"""What the suite knows of requests and their sequences while a target schedules them."""

from dataclasses import dataclass, field
from typing import Any

from paged_conformance.scheduler.saying import EOS, Said


@dataclass(eq=False)
class Sequence:
    """One sample of a request.

    Attributes:
        said: Its tokens, those to come as well.
        known: Tokens that the target was told of: the prompt, and what was drawn.
        pending: Tokens that planned steps draw, and whose values the target does not know yet.
        computed: Positions that planned steps have computed, drafts left out.
        fresh: Its next row may begin behind whatever the cache holds of it.
        planned: A row of it was in a plan.
    """

    request: "Request"
    sample: int
    said: Said
    known: int
    pending: int = 0
    computed: int = 0
    fresh: bool = True
    ended: bool = False
    planned: bool = False

    @property
    def length(self) -> int:
        return self.known + self.pending

    @property
    def name(self) -> str:
        return (
            f"{self.request.id!r}, sample {self.sample}" if self.sample else f"{self.request.id!r}"
        )

    def reasons(self) -> set[str]:
        """Why it ends with the tokens that are known; none if it goes on."""
        asked, last = self.request.asked, self.said.token(self.known - 1)
        num_drawn = self.known - len(asked["prompt"])
        reasons: set[str] = set()
        if num_drawn < 1:
            return reasons
        if (last == EOS and not asked["ignore_eos"]) or last in asked["stop_token_ids"]:
            reasons.add("stop")
        if num_drawn >= asked["max_tokens"] or self.known >= self.request.max_model_len:
            reasons.add("length")
        return reasons


@dataclass(eq=False)
class Request:
    """An accepted request.

    Attributes:
        asked: The arguments of `add`.
        number: How many were accepted before it.
        started: A row of it was in a plan.
    """

    asked: dict[str, Any]
    number: int
    max_model_len: int
    sequences: dict[int, Sequence] = field(default_factory=dict)
    started: bool = False
    num_in_flight: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        for sample in range(self.asked["samples"]):
            salt = hash((self.asked["adapter"], self.asked["salt"]))
            said = Said(self.asked["prompt"], sample, salt)
            self.sequences[sample] = Sequence(self, sample, said, len(self.asked["prompt"]))

    @property
    def id(self) -> str:
        return str(self.asked["id"])

    @property
    def urgency(self) -> tuple[int, int]:
        """Smaller ones go first, where priorities are promised."""
        return self.asked["priority"], self.number

    @property
    def most_tokens(self) -> int:
        """The most tokens that one of its sequences can have."""
        return min(len(self.asked["prompt"]) + int(self.asked["max_tokens"]), self.max_model_len)


def fits(asked: dict[str, Any], sizes: dict[str, Any]) -> bool:
    """Whether a target must accept it: it fits alone, and each sequence has a block to spare."""
    num_tokens = min(len(asked["prompt"]) + asked["max_tokens"], sizes["max_model_len"])
    blocks = -(-num_tokens // sizes["block_size"]) + 1
    return bool(
        0 < len(asked["prompt"]) < sizes["max_model_len"]
        and asked["samples"] <= sizes["max_num_seqs"]
        and asked["samples"] * blocks < sizes["num_blocks"]
    )
