"""Which replica takes a request: one that has the beginning of its prompt, unless it is overloaded.

A prompt is known by its bytes, cut into blocks. A block's name is a digest of its bytes and all
before them, so two prompts share as many names as their beginnings share blocks. No tokenizer is
needed, and processes that have never met give one block one name.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from jax_engine.engine.request_router import KnownBlocks

BLOCK_BYTES = 64
MAX_BLOCKS = 4096  # of a prompt: what is behind them tells no replicas apart
BLOCKS_OF_REPLICA = 1 << 16  # names that are remembered for a replica: 4 MB of prompts
# Fields of a request in the order in which a model reads them; the first two keep prompts apart.
FIELDS = ("model", "cache_salt", "tools", "instructions", "system", "messages", "prompt", "input")


def prompt_blocks(body: bytes) -> list[bytes]:
    """The names of a prompt's full blocks.

    Args:
        body: A request of OpenAI's or Anthropic's API, in JSON; none for anything else.
    """
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return []
    if not isinstance(found, dict):
        return []
    return _names(b"".join(_written(name, found[name]) for name in FIELDS if name in found))


def _written(name: str, value: Any) -> bytes:
    return name.encode() + msgspec.json.encode(value)


def _names(text: bytes) -> list[bytes]:
    """One for each full block of a text."""
    names, before = list[bytes](), b""
    for start in range(0, min(len(text), MAX_BLOCKS * BLOCK_BYTES) - BLOCK_BYTES + 1, BLOCK_BYTES):
        before = _digest(before + text[start : start + BLOCK_BYTES])
        names.append(before)
    return names


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


class PrefixRouting:
    """Chooses among replicas by their names.

    Args:
        imbalanced_threshold: A replica is overloaded if it has this many requests more than the
            one that has fewest.
        match_rate_threshold: The share of a prompt's blocks that a replica must have to be
            preferred.
        blocks_of_replica: How many names are remembered for a replica.
    """

    def __init__(
        self,
        imbalanced_threshold: int = 8,
        match_rate_threshold: float = 0.1,
        blocks_of_replica: int = BLOCKS_OF_REPLICA,
    ) -> None:
        self._threshold = imbalanced_threshold
        self._match_rate = match_rate_threshold
        self._blocks_of_replica = blocks_of_replica
        self._known: dict[str, KnownBlocks] = {}

    @property
    def num_blocks(self) -> dict[str, int]:
        """How many names are remembered for each replica."""
        return {name: len(known) for name, known in self._known.items()}

    def keep(self, replicas: Iterable[str]) -> None:
        """Only these replicas are left; what the others had is forgotten."""
        names = set(replicas)
        self._known = {name: known for name, known in self._known.items() if name in names}

    def choose(self, blocks: Sequence[bytes], loads: Mapping[str, int]) -> str:
        """The replica that takes a request.

        Of those that are not overloaded, the ones with most of the prompt; of these, the ones with
        the fewest requests; of these, the one that every process chooses for this prompt.

        Args:
            blocks: As `prompt_blocks`.
            loads: How many requests each replica has, at least one replica.
        """
        least = min(loads.values())
        fit = [name for name, load in loads.items() if load < least + self._threshold]
        fit = fit or [name for name, load in loads.items() if load == least]
        has = {name: self._matched(name, blocks) for name in fit}
        first = blocks[0] if blocks else b""
        return min(fit, key=lambda name: (-has[name], loads[name], _digest(first + name.encode())))

    def _matched(self, name: str, blocks: Sequence[bytes]) -> int:
        """How many of a prompt's first blocks a replica has; 0 if they are too few to count."""
        known = self._known.get(name)
        count = 0 if known is None else known.first(blocks)
        return count if count >= self._match_rate * len(blocks) else 0

    def add(self, blocks: Sequence[bytes], name: str) -> None:
        """A request is sent to a replica, which has its prompt from now on."""
        self._known.setdefault(name, KnownBlocks(self._blocks_of_replica)).add(blocks)
