"""Blocks that outlive the engine: which of them does a folder keep?

(Not in the paper. vLLM's tiers behind the GPU do the same for accelerators.)

A prompt's full blocks are kept as files, each under the digest of the whole prefix up to its end,
so that an engine that starts anew, or another one, finds them. The folder has a limit in bytes.
What was used longest ago gives way.

Two things about prefixes make that more than a plain LRU. A block is of no use without those
before it, since a look-up stops at the first that is missing. So whoever uses a text uses its
*first* block last: among the blocks of one text, the end gives way before the beginning. And a long
text must not push itself out: a block is stored only if something other than its own beginning can
give way.

>>> files = BlockFiles(limit=4)
>>> files.store(["a0", "a1"], {"a0": 1, "a1": 1})
['a0', 'a1']
>>> files.store(["b0", "b1"], {"b0": 1, "b1": 1})
['b0', 'b1']
>>> files.oldest_first()
['a1', 'a0', 'b1', 'b0']
>>> files.hit_length(["a0", "a1", "a2"])
2
>>> files.use(["a0", "a1"])
['a0', 'a1']
>>> files.store(["c0"], {"c0": 1})                     # b1 has waited longest
['c0']
>>> files.oldest_first(), files.hit_length(["b0", "b1"])
(['b0', 'a1', 'a0', 'c0'], 1)
>>> files.store(["d0", "d1", "d2", "d3", "d4"], dict.fromkeys(["d0", "d1", "d2", "d3", "d4"], 1))
['d0', 'd1', 'd2', 'd3']
>>> files.oldest_first()                               # d4 would have pushed out d3
['d3', 'd2', 'd1', 'd0']
>>> files.store(["e0"], {"e0": 5}), files.num_bytes    # larger than the folder may be
([], 4)
"""

from collections.abc import Mapping, Sequence


class BlockFiles:
    """The files of a folder, as names and sizes, in the order in which they were used."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._files: list[tuple[str, int]] = []  # the one used longest ago first

    @property
    def num_bytes(self) -> int:
        return sum(size for _, size in self._files)

    def oldest_first(self) -> list[str]:
        """The files, those that give way first in front."""
        return [name for name, _ in self._files]

    def hit_length(self, text: Sequence[str]) -> int:
        """How many leading blocks of a text are there."""
        there = self.oldest_first()
        missing = [place for place, name in enumerate(text) if name not in there]
        return min(missing, default=len(text))

    def use(self, text: Sequence[str]) -> list[str]:
        """A request begins with these blocks, the first of its text; returns those there are."""
        used = {name: size for name, size in self._files if name in text}
        found = [name for name in text if name in used]
        others = [one for one in self._files if one[0] not in used]
        self._files = others + [(name, used[name]) for name in reversed(found)]
        return found

    def store(self, text: Sequence[str], sizes: Mapping[str, int]) -> list[str]:
        """Uses a text's blocks, and keeps those of `sizes` that are not there and find room.

        `text` has all blocks of the text up to the last that is to be stored. Returns the new ones.
        """
        there, written = self.use(text), []
        for place, name in enumerate(text):
            if name in sizes and name not in there and self._make_room(sizes[name], text[:place]):
                self._files.append((name, sizes[name]))
                written.append(name)
        self.use(text)
        return written

    def remove(self, name: str) -> None:
        """A file is gone, whoever has removed it; no-op if it was not there."""
        self._files = [one for one in self._files if one[0] != name]

    def _make_room(self, size: int, before: Sequence[str]) -> bool:
        """Let files give way until one of this size fits; False, where it cannot."""
        if size > self.limit:
            return False
        while self.num_bytes + size > self.limit:
            if self._files[0][0] in before:
                return False
            del self._files[0]
        return True
