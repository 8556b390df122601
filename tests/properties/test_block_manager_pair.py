"""The oracle's block manager and the engine's, given the same operations, show the same state.

Compared after every operation: tables, references, free counts, the *order* in which free blocks
will be handed out, cached blocks, the mappings returned, and whether an error was raised. On the
way, of the engine's: I1 to I5, I7, I8, I10 to I12, I14, I25 to I29.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from jax_engine.core import BlockError, BlockManager
from reference.blocks import BlockManager as ReferenceBlockManager
from tests.support.integrity import cached_contents, check_integrity, snapshot
from tests.support.invariants import blocks_for, check_blocks

TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=12)
SALTS = st.sampled_from([None, None, "a"])


@dataclass
class Tracked:
    """A sequence with a table, as the scheduler would know it; its tokens are only appended to."""

    seq_id: int
    tokens: list[int]
    salt: str | None
    computed: int = 0
    prompt_len: int = 0
    chain: list[Any] = field(default_factory=list)


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call returned, or that it raised."""
    try:
        return "returned", call()
    except Exception as error:
        return "raised", isinstance(error, AssertionError)


def offer(blocks: Any, seq: Tracked) -> None:
    """Enters the full blocks of computed tokens into the prefix cache."""
    if isinstance(blocks, BlockManager):
        blocks.register(seq.seq_id, seq.tokens, seq.computed, seq.salt)
    else:
        blocks.offer(seq.seq_id, seq.tokens[: seq.computed], seq.salt)


def future_allocations(blocks: Any) -> tuple[Any, ...]:
    """The free blocks of both pools in the order in which they would be handed out."""
    blocks = copy.deepcopy(blocks)
    size, order = blocks.block_size, []
    for seq_id in range(10_000, 10_000 + blocks.num_free_gpu_blocks):
        blocks.allocate_slots(seq_id, [9] * size, 0, size)
        order += blocks.block_table(seq_id)
    for seq_id in range(10_000, 10_000 + len(order)):
        blocks.free(seq_id)
    count = min(len(order), blocks.num_free_cpu_blocks)
    if count:
        blocks.allocate_slots(20_000, [8] * size * count, 0, size * count)
    return order, [cpu for _, cpu in blocks.swap_out([20_000])]


class BlockManagerPair(RuleBasedStateMachine):
    sequences = Bundle("sequences")

    @initialize(
        block_size=st.sampled_from([1, 2, 3, 4]),
        num_gpu_blocks=st.integers(2, 20),
        num_cpu_blocks=st.sampled_from([0, 2, 8, 40]),
        watermark=st.sampled_from([0.0, 0.01, 0.2]),
        caching=st.booleans(),
        colliding=st.booleans(),
    )
    def build(
        self,
        block_size: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int,
        watermark: float,
        caching: bool,
        colliding: bool,
    ) -> None:
        self.size, self.caching = block_size, caching
        self.pools = num_gpu_blocks, num_cpu_blocks
        arguments = (block_size, num_gpu_blocks, num_cpu_blocks)
        options = {"watermark": watermark, "enable_prefix_caching": caching}
        self.reference: Any = ReferenceBlockManager(*arguments, **options)
        # I25: also where every content has the same hash
        more: dict[str, Any] = {"hash_fn": lambda _: 0} if colliding else {}
        self.engine = BlockManager(*arguments, **options, **more)
        self.live: dict[int, Tracked] = {}
        self.written: dict[int, tuple[tuple[int, ...], str | None]] = {}
        self.made: dict[int, int] = {}  # of written blocks: how they came about, a number
        self.ways: dict[Any, int] = {}  # which ways there are, and their numbers
        self.next_id = 0

    def both(self, call: Callable[[Any], Any]) -> Any:
        """The same call on both sides; what it returned, or None where both raised.

        I7, I8: an error leaves the engine as it was.
        """
        before = snapshot(self.engine)
        engine = outcome(lambda: call(self.engine))
        reference = outcome(lambda: call(self.reference))
        assert engine == reference
        if engine[0] == "raised":
            assert snapshot(self.engine) == before, "I7, I8"
            return None
        return engine[1]

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def allocate(self, seq: Tracked, num_tokens: int, cached: list[int]) -> bool:
        """allocate_slots on both sides; the engine's with and without the memo of nodes."""
        before, start = snapshot(self.engine), seq.computed
        need = self.both(lambda blocks: blocks.blocks_needed(seq.seq_id, start, num_tokens))
        copies = self.both(
            lambda blocks: blocks.allocate_slots(
                seq.seq_id,
                seq.tokens,
                start,
                num_tokens,
                cached=cached,
                cache_salt=seq.salt,
                prompt_len=seq.prompt_len,
                **({"chain": seq.chain} if blocks is self.engine and seq.seq_id % 2 else {}),
            )
        )
        if copies is None:
            assert snapshot(self.engine) == before, "I28"
            return False
        if not cached:
            taken = len(before.pools["gpu"].free) - self.engine.num_free_gpu_blocks
            assert taken == need, "I8: blocks_needed is exact for one sequence"
        self.check_write(seq, num_tokens, copies)
        seq.computed = num_tokens
        return True

    def check_write(self, seq: Tracked, num_tokens: int, copies: list[tuple[int, int]]) -> None:
        table, first = self.engine.block_table(seq.seq_id), seq.computed // self.size
        assert len(table) == blocks_for(num_tokens, self.size), "I6"
        assert all(self.engine.ref_count(block) == 1 for block in table[first:]), "I10"
        assert {dst for _, dst in copies} <= set(table[first:]), "I11"
        assert not {src for src, _ in copies} & set(table), "I11"
        self.note_written(seq, first, num_tokens)

    def note_written(self, seq: Tracked, first: int, num_tokens: int) -> None:
        table = self.engine.block_table(seq.seq_id)
        for index in range(first, num_tokens // self.size):
            self.written[table[index]] = tuple(seq.tokens[: (index + 1) * self.size]), seq.salt
            before = [self.made.get(block, -1) for block in table[:index]]
            self.made[table[index]] = self.way(index, seq.prompt_len, before)

    def way(self, index: int, prompt_len: int, before: list[int]) -> int:
        """How a block came about: which positions were a prompt's, and how those before it did.

        Bits depend on no less and, for the same tokens, on no more.
        """
        positions = range(index * self.size, (index + 1) * self.size)
        kinds = tuple(position < prompt_len for position in positions)
        return self.ways.setdefault((*before, kinds), len(self.ways))

    def own_ways(self, num_blocks: int, prompt_len: int) -> list[int]:
        """Ways of a sequence that computes all of its blocks itself."""
        own: list[int] = []
        for index in range(num_blocks):
            own.append(self.way(index, prompt_len, own))
        return own

    @rule(
        target=sequences,
        tokens=TOKENS,
        salt=SALTS,
        share=st.booleans(),
        part=st.integers(0, 12),
        prompt_len=st.sampled_from([12, 12, 1, 4, 6]),
    )
    def open(
        self, tokens: list[int], salt: str | None, share: bool, part: int, prompt_len: int
    ) -> Any:
        """Admit a prompt, or its first chunk, behind its cached prefix."""
        seq = Tracked(self.new_id(), tokens, salt, prompt_len=prompt_len)
        hits = self.check_lookup(tokens, salt, seq.chain) if share else []
        return self.admit(seq, part, hits)

    @rule(target=sequences, seq=consumes(sequences), part=st.integers(0, 12))
    def come_back(self, seq: Tracked, part: int) -> Any:
        """A preempted sequence takes only blocks that it would compute itself (I52)."""
        if seq.seq_id not in self.live:
            return multiple()
        self.both(lambda blocks: blocks.free(seq.seq_id))
        del self.live[seq.seq_id]
        hits = self.check_lookup(seq.tokens, seq.salt, seq.chain, seq.prompt_len)
        return self.admit(seq, part, hits)

    def admit(self, seq: Tracked, part: int, hits: list[int]) -> Any:
        tokens = seq.tokens
        seq.computed = len(hits) * self.size
        if not self.allocate(seq, max(seq.computed + 1, len(tokens) - part), hits):
            return multiple()
        self.live[seq.seq_id] = seq
        return seq

    def check_lookup(
        self,
        tokens: list[int],
        salt: str | None,
        chain: list[Any] | None = None,
        prompt_len: int | None = None,
    ) -> list[int]:
        """I25, I26, I29: the longest run of full cached blocks, leaving a token to compute.

        I52: with `prompt_len`, of those that a sequence with such a prompt computes to these bits.
        """
        before = snapshot(self.engine)
        hits: list[int] = self.both(
            lambda blocks: blocks.cached_blocks(tokens, salt, prompt_len=prompt_len)
        )
        assert self.engine.cached_blocks(tokens, salt, chain, prompt_len) == hits
        assert snapshot(self.engine) == before
        known = {content: block for block, content in cached_contents(self.engine).items()}
        expected = []
        while (len(expected) + 1) * self.size < len(tokens):
            content = tuple(tokens[: (len(expected) + 1) * self.size]), salt
            if content not in known:
                break
            if prompt_len is not None:
                *_, own = self.own_ways(len(expected) + 1, prompt_len)
                if self.made[known[content]] != own:
                    break
            expected.append(known[content])
        assert hits == expected, "I26"
        return hits

    @rule(seq=sequences, more=st.lists(st.integers(0, 1), max_size=12), part=st.integers(1, 12))
    def append(self, seq: Tracked, more: list[int], part: int) -> None:
        """Compute a further chunk; refused on both sides where it is swapped out."""
        seq.tokens += more
        if seq.seq_id in self.live and len(seq.tokens) > seq.computed:
            self.allocate(seq, min(len(seq.tokens), seq.computed + part), [])

    @rule(seq=sequences, token=st.integers(0, 1))
    def decode(self, seq: Tracked, token: int) -> None:
        self.append(seq, [token], 1)

    @rule(
        seq=sequences,
        drafts=st.lists(st.integers(0, 1), max_size=9),
        num_right=st.integers(0, 9),
        finder=st.booleans(),
    )
    def draft(self, seq: Tracked, drafts: list[int], num_right: int, finder: bool) -> None:
        """A token and drafts behind it, of which the first may be right; the others are trimmed.

        A `finder` is admitted in between, which may find the block that the token has filled.
        """
        if len(seq.tokens) != seq.computed:
            return
        seq.tokens.append(num_right % 2)
        known, start = len(seq.tokens), seq.computed
        drafted = seq.seq_id in self.live and self.allocate(seq, known, [])
        if drafted and finder:
            self.open([*seq.tokens, 0], seq.salt, share=True, part=0, prompt_len=12)
        drafted = drafted and self.allocate(seq, known + len(drafts), [])
        seq.tokens += drafts[:num_right]
        if drafted:
            seq.computed = len(seq.tokens)
            table = self.engine.block_table(seq.seq_id)
            self.note_written(seq, start // self.size, seq.computed)
        self.both(lambda blocks: blocks.trim(seq.seq_id, seq.computed))
        if drafted:
            kept = blocks_for(seq.computed, self.size)
            assert self.engine.block_table(seq.seq_id) == table[:kept], "I6"
        self.both(lambda blocks: offer(blocks, seq))

    @rule(seq=sequences)
    def trim_too_much(self, seq: Tracked) -> None:
        """I7: what may be cached stays."""
        offered = self.caching and seq.computed >= self.size and seq.seq_id in self.live
        table = self.engine.tables.get(seq.seq_id)
        if offered and table is not None and table.num_tried:
            before = snapshot(self.engine)
            assert self.both(lambda blocks: blocks.trim(seq.seq_id, self.size - 1)) is None
            assert snapshot(self.engine) == before, "I7"

    @rule(target=sequences, seq=sequences, prefix_only=st.booleans(), drop=st.integers(0, 2))
    def fork(self, seq: Tracked, prefix_only: bool, drop: int) -> Any:
        """Share all blocks, or only leading full ones."""
        if seq.seq_id not in self.live:
            return multiple()
        full = max(0, seq.computed // self.size - drop)
        computed = full * self.size if prefix_only else seq.computed
        child = Tracked(self.new_id(), seq.tokens[:computed], seq.salt, computed)
        child.prompt_len = seq.prompt_len
        num_blocks = full if prefix_only else None
        refs = list(self.engine.gpu.refs) + list(self.engine.cpu.refs)
        self.both(lambda blocks: blocks.fork(seq.seq_id, child.seq_id, num_blocks))
        table = self.engine.block_table(child.seq_id)
        assert table == self.engine.block_table(seq.seq_id)[: len(table)], "I12"
        changed = list(self.engine.gpu.refs) + list(self.engine.cpu.refs)
        assert sum(changed) - sum(refs) == len(table), "I12"
        if not table:
            return multiple()
        self.live[child.seq_id] = child
        return child

    @rule(seq=consumes(sequences))
    def free(self, seq: Tracked) -> None:
        """Twice: the second time is a no-op."""
        self.both(lambda blocks: blocks.free(seq.seq_id))
        self.both(lambda blocks: blocks.free(seq.seq_id))
        self.live.pop(seq.seq_id, None)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), way=st.sampled_from(["out", "in"]), extra=st.integers(0, 3))
    def swap(self, data: st.DataObject, way: str, extra: int) -> None:
        """Any sequences, in any order; refused on both sides when it cannot be done (I8)."""
        chosen = st.lists(st.sampled_from(sorted(self.live)), min_size=1, max_size=4, unique=True)
        ids = data.draw(chosen)
        before = {i: self.engine.block_table(i) for i in ids}
        if way == "out":
            can = self.both(lambda blocks: blocks.can_swap_out(ids))
            pairs = self.both(lambda blocks: blocks.swap_out(ids))
        else:
            can = self.both(lambda blocks: blocks.can_swap_in(ids, 0))
            self.both(lambda blocks: blocks.can_swap_in(ids, extra))
            pairs = self.both(lambda blocks: blocks.swap_in(ids))
        assert can == (pairs is not None), "I8"
        if pairs is None:
            return
        mapping = dict(pairs)
        assert len(mapping) == len(set(mapping.values())) == len(pairs), "I14: injective"
        for i, table in before.items():
            assert self.engine.block_table(i) == [mapping[block] for block in table], "I14"

    @rule()
    def reset(self) -> None:
        self.both(lambda blocks: blocks.reset_prefix_cache())

    @rule(tokens=TOKENS, salt=SALTS, prompt_len=st.sampled_from([None, 0, 1, 4, 6, 12]))
    def look_up(self, tokens: list[int], salt: str | None, prompt_len: int | None) -> None:
        self.check_lookup(tokens, salt, None, prompt_len)

    @rule(child=sequences, parent=sequences)
    def fork_into_used(self, child: Tracked, parent: Tracked) -> None:
        """I7: nothing is overwritten."""
        if child.seq_id in self.live and parent.seq_id in self.live:
            before = snapshot(self.engine)
            try:
                self.engine.fork(parent.seq_id, child.seq_id)
            except BlockError:
                assert snapshot(self.engine) == before, "I7"
            else:
                raise AssertionError("a table was overwritten")

    @invariant()
    def same_state(self) -> None:
        engine, reference = self.engine, self.reference
        for blocks in (engine, reference):
            check_blocks(blocks, self.live, *self.pools)
        for seq_id in [*self.live, self.next_id + 1]:
            assert engine.block_table(seq_id) == reference.block_table(seq_id)
            assert engine.device(seq_id) == reference.device(seq_id)
        assert engine.num_cached_blocks == reference.num_cached_blocks
        assert future_allocations(engine) == future_allocations(reference), "I27"

    @invariant()
    def sound(self) -> None:
        check_integrity(self.engine)
        for block, content in cached_contents(self.engine).items():
            assert self.written[block] == content, "I25, I27, I29: stale or never full"

    def teardown(self) -> None:
        """I9, and with it that no reference was lost on the way."""
        if not hasattr(self, "engine"):
            return
        for seq_id in self.live:
            self.both(lambda blocks, seq_id=seq_id: blocks.free(seq_id))
        assert self.engine.num_free_gpu_blocks == self.pools[0], "I9"
        assert self.engine.num_free_cpu_blocks == self.pools[1], "I9"
        assert not self.engine.tables, "I9"


TestBlockManagerPair = BlockManagerPair.TestCase
