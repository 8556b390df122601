"""The model of the stub worker: what comes next is a pure function of tokens and a seed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from zlib import crc32

from reference.random_numbers import derive_seed

VOCABULARY = 5
EOS = 2
_MASK = 2**64 - 1


def next_token(token_ids: Sequence[int], seed: int, forbidden: Collection[int] = ()) -> int:
    """What follows these tokens; never one of `forbidden`."""
    mixed = crc32(bytes(token_ids), crc32(seed.to_bytes(8, "little")))
    token = ((mixed * 0x9E3779B97F4A7C15) & _MASK) >> 40
    token %= VOCABULARY
    while token in forbidden:
        token = (token + 1) % VOCABULARY
    return token


def letter(token_id: int) -> str:
    """The text of a token; none of the end of a sequence."""
    return "" if token_id == EOS else chr(ord("A") + token_id)


@dataclass(frozen=True)
class Sample:
    """How one sample of a request must come out.

    Attributes:
        tokens: Its output.
        text: Of them, without the stop string that ended it.
        end: finish_reason and stop_reason.
    """

    tokens: list[int]
    text: str
    end: tuple[str, int | str | None]


@dataclass(frozen=True)
class Rules:
    """What of a request decides its tokens; all that the oracle reads of one."""

    prompt: tuple[int, ...]
    seed: int
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stop_token_ids: tuple[int, ...]
    stop: tuple[str, ...]

    def sample(self, index: int, max_model_len: int) -> Sample:
        """The index-th sample, computed alone and from scratch."""
        seed = derive_seed(self.seed, index)
        ends = {EOS, *self.stop_token_ids}
        longest = max_model_len - len(self.prompt)
        longest = longest if self.max_tokens is None else min(longest, self.max_tokens)
        tokens: list[int] = []
        text = ""
        while True:
            early = len(tokens) < self.min_tokens
            token = next_token([*self.prompt, *tokens], seed, ends if early else ())
            tokens.append(token)
            early = len(tokens) < self.min_tokens
            if token == EOS and not self.ignore_eos and not early:
                return Sample(tokens, text, ("stop", None))
            if token in self.stop_token_ids and not early:
                return Sample(tokens, text, ("stop", token))
            text += letter(token)
            found = [one for one in self.stop if text.endswith(one)] if letter(token) else []
            if found and len(tokens) > self.min_tokens:
                longest_found = max(found, key=len)
                return Sample(tokens, text.removesuffix(longest_found), ("stop", longest_found))
            if len(tokens) == longest:
                return Sample(tokens, text, ("length", None))
