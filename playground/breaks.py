"""Faults that a reader can plant, each a few lines over the oracle's own classes.

>>> sorted(BREAKS)[:2]
['a rejected block hashed', 'a trim forgotten']
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from playground.trace_memory import WordMemory
from reference.blocks import BlockManager, BlockPair, BlockTable
from reference.scheduler import Scheduler
from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import SequenceGroup
from reference.speculation import accepted


@dataclass(frozen=True)
class System:
    """The parts that a run is made of."""

    block_manager: type[BlockManager] = BlockManager
    scheduler: type[Scheduler] = Scheduler
    memory: type[WordMemory] = WordMemory


class _NoWatermark(BlockManager):
    watermark_blocks = property(lambda self: 0, lambda self, wanted: None)


class _FreesBeforeForking(BlockManager):
    def fork(self, parent_id: int, child_id: int, num_blocks: int | None = None) -> None:
        self.free(parent_id)
        super().fork(parent_id, child_id, num_blocks)


class _ForksWithoutCounting(BlockManager):
    def fork(self, parent_id: int, child_id: int, num_blocks: int | None = None) -> None:
        blocks = self.block_table(parent_id)[:num_blocks]
        self._keep(child_id, BlockTable(blocks, self.device(parent_id) or "gpu"))


class _WritesSharedBlocks(BlockManager):
    def _copy_on_write(self, table: BlockTable, start: int) -> list[BlockPair]:
        return []


class _RemembersOverwrittenBlocks(BlockManager):
    def _take_gpu_block(self) -> int:
        return self.gpu.allocate()


class _CopiesBeforeSwappingOut(WordMemory):
    def begin_step(
        self,
        swap_in: Sequence[BlockPair],
        swap_out: Sequence[BlockPair],
        copies: Sequence[BlockPair],
    ) -> None:
        super().begin_step(swap_in, [], copies)
        super().begin_step([], swap_out, [])


class _KeepsTheCount(Scheduler):
    def schedule(self) -> SchedulerOutput:
        computed = {
            seq: seq.num_computed_tokens for group in self.running for seq in group.unfinished
        }
        output = super().schedule()
        for name, mode in output.preempted:
            for seq in self.groups[name].unfinished:
                if mode == "recompute":
                    seq.num_computed_tokens = computed[seq]
        return output


class _KeepsOneTooMany(Scheduler):
    def update(self, sampled: Mapping[int, Sequence[Any]]) -> list[SequenceGroup]:
        taken = dict(sampled)
        for i, entry in enumerate(self._last.scheduled):
            if entry.drafts:
                drawn = sampled[entry.seq.seq_id]
                kept = min(len(accepted(entry.drafts, drawn)), entry.num_drafts)
                # The guesses up to the first wrong one pass for what was drawn
                self._last.scheduled[i] = replace(
                    entry, num_tokens=1 + kept, drafts=tuple(drawn[:kept])
                )
                taken[entry.seq.seq_id] = drawn[: kept + 1]
        return super().update(taken)


class _CachesGuesses(Scheduler):
    def schedule(self) -> SchedulerOutput:
        output = super().schedule()
        for entry in output.scheduled:
            self._offer_drafts(entry)
        return output

    def _offer_drafts(self, entry: ScheduledSequence) -> None:
        manager, known = self.block_manager, len(entry.seq.token_ids)
        tokens, size = [*entry.seq.token_ids, *entry.drafts], manager.block_size
        table = manager.block_table(entry.seq.seq_id)
        if entry.drafts and manager.enable_prefix_caching:
            for i in range(known // size, len(tokens) // size):
                salt = entry.group.cache_salt
                manager.prefix_cache.offer(table[i], tokens[: (i + 1) * size], salt)


class _LosesTrimmedBlocks(BlockManager):
    def trim(self, seq_id: int, num_tokens: int) -> None:
        table = self._tables.get(seq_id, BlockTable([]))
        del table.blocks[self.num_blocks_for(num_tokens) :]


@dataclass(frozen=True)
class Break:
    """A fault: which rule it breaks, in a sentence, and the system that has it.

    Attributes:
        user: what becomes of it for those who wait for answers. A test has runs go on, and looks.
        chapter: the page and section of docs/tutorial/ that has the rule.
        falls: the invariants of which one falls first.
        plant: makes a system one with the fault.
        needs: settings without which it cannot show.
        preempts: its example goes on until the request that was admitted is preempted.
        then: its example goes on until one of these falls, too.
    """

    says: str
    user: str
    chapter: str
    falls: tuple[str, ...]
    plant: Callable[[System], System]
    needs: Mapping[str, object] = field(default_factory=dict)
    preempts: bool = False
    then: tuple[str, ...] = ()


BREAKS: Mapping[str, Break] = {
    "no watermark": Break(
        "A request is admitted though it takes the last free blocks, so the next token of another "
        "one preempts it at once.",
        "Slower: the right text, after steps that were computed in vain.",
        "scheduler.md#the-watermark",
        ("I18",),
        lambda system: replace(system, block_manager=_NoWatermark),
        {"watermark_percent": 30},
        preempts=True,
    ),
    "no admission rule": Break(
        "Every request is accepted. One that needs more blocks than there are waits for ever, and "
        "all others behind it.",
        "A hang: no answer, nor to anybody who comes later.",
        "scheduler.md#who-is-let-in-at-all",
        ("I20",),
        lambda system: system,  # a setting of the scheduler
    ),
    "free before fork": Break(
        "The parent's blocks are given back first, so the child finds nothing to share.",
        "Wrong text: all samples go on without the prompt.",
        "sharing.md#several-samples-of-one-prompt",
        ("I13",),
        lambda system: replace(system, block_manager=_FreesBeforeForking),
    ),
    "fork without counting": Break(
        "A fork shares blocks, but their reference counts stay: the first to end frees what others "
        "still read.",
        "Wrong text, as siblings write into each other's blocks; then a crash, when the second one "
        "frees what is free.",
        "block-manager.md#the-allocator",
        ("I1",),
        lambda system: replace(system, block_manager=_ForksWithoutCounting),
    ),
    "no copy on write": Break(
        "A sample writes into a block that others share.",
        "Wrong text: samples go on from each other's words.",
        "sharing.md#the-rule",
        ("I10",),
        lambda system: replace(system, block_manager=_WritesSharedBlocks),
    ),
    "copies before swapping out": Break(
        "A copy is made into a block that a victim has just left, before the victim's content has "
        "been carried to the CPU.",
        "Wrong text, once the victim is back.",
        "swap-or-recompute.md#the-order-inside-a-step",
        ("I13",),
        lambda system: replace(system, memory=_CopiesBeforeSwappingOut),
        {"preemption": "swap", "cpu_blocks": 12},
    ),
    "recompute keeps the count": Break(
        "A request that was preempted by recompute loses its blocks, but not the count of tokens "
        "that it has in memory.",
        "A crash in the sosp modes, as tokens are planned that are not there. (Nothing in unified, "
        "where admission counts anew.)",
        "swap-or-recompute.md#two-ways-back",
        ("I6",),
        lambda system: replace(system, scheduler=_KeepsTheCount),
        {"preemption": "recompute", "scheduling": "sosp"},
    ),
    "cache remembers overwritten blocks": Break(
        "A cached block is handed out and overwritten, and the prefix cache still finds it by its "
        "old content.",
        "Wrong text: a prompt goes on from somebody else's words.",
        "prefix-caching.md#hits-duplicates-evictions-six-blocks-by-hand",
        ("I25", "I13"),
        lambda system: replace(system, block_manager=_RemembersOverwrittenBlocks),
        {"prefix_caching": True},
    ),
    "one accepted too many": Break(
        "The token that was drawn behind the first wrong guess is kept: the model has drawn it "
        "behind a word that is not in the text.",
        "Wrong text: a word that the model never said there, and all that follows from it.",
        "speculation.md#a-step-has-room",
        ("I53", "I13"),
        lambda system: replace(system, scheduler=_KeepsOneTooMany),
        {"guesses": 3},
    ),
    "a rejected block hashed": Break(
        "A block is offered to the prefix cache while there are guesses in it. If they are wrong, "
        "right words are written there, and the cache still finds the block by the wrong ones.",
        "Wrong text: a prompt that begins as somebody guessed goes on from other words.",
        "speculation.md#planning-and-giving-back",
        ("I29",),
        lambda system: replace(system, scheduler=_CachesGuesses),
        {"guesses": 3, "prefix_caching": True},
        then=("I13",),
    ),
    "a trim forgotten": Break(
        "Blocks that hold only wrong guesses leave the table, and are not given back to the pool: "
        "a leak.",
        "A hang: each wrong guess may cost a block, until there are too few for anybody.",
        "speculation.md#planning-and-giving-back",
        ("I1",),
        lambda system: replace(system, block_manager=_LosesTrimmedBlocks),
        {"guesses": 3},
    ),
}


def system_of(names: Sequence[str]) -> System:
    """The oracle's system with these faults; at most one of each part.

    Raises KeyError for an unknown name.
    """
    system = System()
    for name in names:
        system = BREAKS[name].plant(system)
    return system
