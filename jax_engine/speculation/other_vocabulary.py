"""A draft model with another vocabulary: guesses go through the text.

The target's tokens become bytes, the bytes become the draft's tokens, and the draft model goes on
with these. What it draws becomes bytes again, and these the target's guesses. Only what is new is
translated: the draft's text is tokenised again from a few words before its end.

Both models count other tokens, so the target's block tables are none for the draft. The draft's
sequences have tables of their own over a pool of the same size. When it runs out, the sequence is
forgotten that was asked for longest ago.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol

import numpy as np

from jax_engine.core.blocks import BlockPool
from jax_engine.speculation.draft_cache import DraftCache, DraftTarget, PrefixHashes
from jax_engine.speculation.draft_runner import DraftRunner
from jax_engine.speculation.drafter import CacheView, DraftRequest
from jax_engine.step import RequestSetup

REREAD = 48  # bytes at the end of a text that are tokenised again when it goes on
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


class Vocabulary(Protocol):
    """What is read of a tokenizer."""

    @property
    def special_ids(self) -> Collection[int]:
        """Tokens that are no text."""

    @property
    def token_bytes(self) -> Mapping[int, bytes] | None:
        """The bytes of each token."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text."""


class Translation:
    """One sequence's text in the draft's tokens, which grows with the target's.

    Args:
        start: The tokens with which each text of the draft begins.

    Attributes:
        token_ids: The draft's tokens.
        rest: Bytes at the end that are no whole character yet; in no token.
        num_read: Tokens of the target that it has read.
    """

    def __init__(self, target: "Words", draft: "Words", start: list[int]) -> None:
        self._target, self._draft = target, draft
        self.token_ids = list(start)
        self._num_start = len(start)
        self.rest = b""
        self.num_read = 0

    def upto(self, token_ids: list[int]) -> int:
        """Reads the target's new tokens; returns how many of the draft's tokens stay as they were.

        Those behind are replaced: a word that has gone on is other tokens.
        """
        data = self.rest + self._target.bytes_of(token_ids[self.num_read :])
        self.num_read = len(token_ids)
        kept = len(self.token_ids)
        reread = b""
        while kept > self._num_start and len(reread) < REREAD:
            kept -= 1
            reread = self._draft.bytes_of(self.token_ids[kept : kept + 1]) + reread
        data = reread + data
        whole = _whole_characters(data)
        self.rest = data[whole:]
        before = self.token_ids[kept:]
        after = self._draft.tokens_of(data[:whole])
        same = _common(before, after)
        self.token_ids[kept + same :] = after[same:]
        return kept + same


class Words:
    """A vocabulary as bytes."""

    def __init__(self, tokenizer: Vocabulary) -> None:
        assert tokenizer.token_bytes is not None, "checked when the draft model was opened"
        self._tokenizer, self._bytes = tokenizer, tokenizer.token_bytes
        self._special = frozenset(tokenizer.special_ids)

    def bytes_of(self, token_ids: Sequence[int]) -> bytes:
        """Special tokens are no text."""
        table, special = self._bytes, self._special
        return b"".join([table[token] for token in token_ids if token not in special])

    def text_of(self, token_ids: list[int]) -> list[int]:
        """The tokens before the first special one."""
        end = (i for i, token in enumerate(token_ids) if token in self._special)
        return token_ids[: next(end, None)]

    def end_of(self, token_ids: list[int]) -> bytes:
        """The last bytes of a text, of whole tokens and characters, behind its special tokens."""
        data = b""
        for token in reversed(token_ids):
            if token in self._special or len(data) >= REREAD:
                break
            data = self._bytes[token] + data
        return data.lstrip(_CONTINUATION)

    def tokens_of(self, data: bytes) -> list[int]:
        return self._tokenizer.encode(data.decode("utf-8", "replace"), add_special_tokens=False)

    def behind(self, before: bytes, data: bytes) -> list[int]:
        """The tokens of `data` behind a text that ends with `before`.

        A token border must be where `before` ends. If the two would grow together there, the text
        goes on as its writer has split it: `data` alone is tokenised.
        """
        whole = _whole_characters(data)
        for start, text in ((len(before), before + data[:whole]), (0, data[:whole])):
            tokens = self.tokens_of(text)
            ends = list(accumulate([len(self._bytes[token]) for token in tokens], initial=0))
            if ends[-1] == len(text) and start in ends:  # not if its bytes are no text
                return tokens[ends.index(start) :]
        return []


class OtherVocabularyDrafter:
    """Draws guesses with a draft model that has another vocabulary.

    Args:
        target, draft: The tokenizers.
        num_blocks: Blocks of the draft's cache.
        block_size: B.
        max_model_len: The longest text that the draft model reads, in its tokens.
        max_num_batched_tokens: As in `DraftCache`.
    """

    def __init__(
        self,
        runner: DraftRunner,
        target: Vocabulary,
        draft: Vocabulary,
        *,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        max_num_batched_tokens: int,
    ) -> None:
        self._runner, self._max_len, self._block_size = runner, max_model_len, block_size
        self._cache = DraftCache(
            runner, num_blocks=num_blocks, max_num_batched_tokens=max_num_batched_tokens
        )
        self._target, self._draft = Words(target), Words(draft)
        self._start = draft.encode("", add_special_tokens=True)
        self._pool = BlockPool("draft", num_blocks)
        self._known: dict[int, _Known] = {}  # by seq_id, the one asked for longest ago first

    def propose(self, asked: Sequence[DraftRequest]) -> list[list[int] | None]:
        found: dict[int, list[int] | None] = dict.fromkeys([one.seq_id for one in asked])
        wanted: dict[int, DraftTarget] = {}
        for one in asked:
            want = self._want(one, found.keys())
            if isinstance(want, DraftTarget):
                wanted[one.seq_id] = want
            else:
                found[one.seq_id] = want
        for seq_id, drawn in zip(wanted, self._cache.draw(list(wanted.values())), strict=True):
            found[seq_id] = drawn
        return [self._translated(one, found[one.seq_id]) for one in asked]

    def promises(self, one: DraftRequest) -> bool:
        """A model always has something to say."""
        return True

    def forget(self, seq_ids: Collection[int]) -> None:
        for seq_id in set(seq_ids) & self._known.keys():
            self._pool.free_all(self._known.pop(seq_id).blocks)
        self._runner.close(seq_ids)

    def _want(self, one: DraftRequest, asked: Collection[int]) -> DraftTarget | list[int] | None:
        """What is drawn for a sequence; no guesses if there can be none, None if not yet."""
        held = one.held
        assert held is not None, "all requests were opened"
        known = self._known.pop(one.seq_id, None) or self._begin(held)
        self._known[one.seq_id] = known  # behind all others
        known.read(one.token_ids)
        tokens = known.text.token_ids
        most = min(one.most, held.room, self._max_len + 1 - len(tokens))
        if most < 1 or not tokens:
            return []
        if known.text.rest:  # a character is only half there
            return None
        if not self._fill(known, len(tokens) + most - 1, asked):
            return None
        blocks = np.array(known.blocks, np.int32)
        return DraftTarget(
            tokens, len(tokens), known.hashes, blocks, most, known.setup_for(one, held), 0
        )

    def _begin(self, held: CacheView) -> "_Known":
        text = Translation(self._target, self._draft, self._start)
        return _Known(text, PrefixHashes(held.salt))

    def _fill(self, known: "_Known", num_tokens: int, asked: Collection[int]) -> bool:
        """Takes blocks for so many tokens; those that are asked for now keep theirs."""
        needed = -(-num_tokens // self._block_size) - len(known.blocks)
        others = [seq_id for seq_id in self._known if seq_id not in asked]
        while needed > self._pool.num_free and others:
            self.forget([others.pop(0)])
        if needed > self._pool.num_free:
            return False
        known.blocks += [self._pool.allocate() for _ in range(needed)]
        return True

    def _translated(self, one: DraftRequest, drawn: list[int] | None) -> list[int] | None:
        """The target's tokens for what the draft has drawn, up to its first special token."""
        if not drawn:
            return drawn
        data = self._draft.bytes_of(self._draft.text_of(drawn))
        return self._target.behind(self._target.end_of(one.token_ids), data)


@dataclass(slots=True)
class _Known:
    """A sequence of the draft.

    Attributes:
        blocks: Those of the pool that it has.
        setup: What the draft's runner knows it by.
    """

    text: Translation
    hashes: PrefixHashes
    blocks: list[int] = field(default_factory=list)
    setup: RequestSetup | None = None

    def read(self, token_ids: list[int]) -> None:
        self.hashes.cut(self.text.upto(token_ids))
        self.hashes.upto(self.text.token_ids)

    def setup_for(self, one: DraftRequest, held: CacheView) -> RequestSetup:
        """Each sequence is a request of its own, whose prompt is what it begins with."""
        if self.setup is None:
            given, sample = held.setup, held.sample
            rows = given.rows if len(given.rows) == 1 else given.rows[sample : sample + 1]
            prompt = self.text.token_ids[:-1]
            self.setup = replace(given, number=one.seq_id, prompt_token_ids=prompt, rows=rows)
        return self.setup


def _whole_characters(data: bytes) -> int:
    """How many of the bytes are whole characters of UTF-8: all, or but for one at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # it begins a character
            size = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if size > back else len(data)
    return len(data)


def _common(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))
