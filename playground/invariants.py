"""What must hold, checked on a run in the middle of a step, by the names of the specification.

Each check reads the state alone: tables, counts, the free list, queues and the words in memory.
"""

from collections import Counter
from collections.abc import Iterator

from playground.trace_run import Run
from playground.trace_sentences import counted
from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import Sequence, SequenceStatus


class Fell(Exception):
    """An invariant does not hold: its name, what is wrong in a sentence, and whom it will cost."""

    def __init__(self, invariant: str, says: str, who: str = "") -> None:
        super().__init__(f"{invariant}: {says}")
        self.invariant, self.says, self.who = invariant, says, who


TITLES = {
    "I1": "A block's reference count is the number of sequences that hold it.",
    "I2": "A block is free if and only if nobody holds it, and is free once.",
    "I6": "A table has exactly the blocks that its computed and scheduled tokens need.",
    "I7": "The block manager never contradicts itself.",
    "I9": "When all requests have finished, every block of both pools is in its free list once.",
    "I10": "Nobody writes into a block that others hold.",
    "I13": "In memory, each token of a sequence is where its block table says.",
    "I16": "An unfinished request is in exactly one queue.",
    "I18": "Admission leaves the watermark free.",
    "I20": "A step is never empty while requests are unfinished, and every accepted request "
    "finishes within a bounded number of steps.",
    "I25": "A hit means equal tokens and salt: a block that the prefix cache finds holds the "
    "tokens that it is found by.",
    "I29": "Only full blocks are cached, and none with a guess in it that is not verified.",
    "I53": "Guesses change no token.",
}
SECTIONS = {
    "blocks-and-tables": ("I1", "I2", "I6", "I7", "I9"),
    "sharing-copy-on-write-swapping": ("I10", "I13"),
    "scheduler": ("I16", "I18", "I20"),
    "prefix-cache": ("I25", "I29"),
    "outputs": ("I53",),
}
"""Where docs/correctness.md has them."""


def section(invariant: str) -> str:
    """The anchor of docs/correctness.md that an invariant stands below."""
    return next(name for name, those in SECTIONS.items() if invariant in those)


def check_plan(run: Run, output: SchedulerOutput) -> None:
    """After a step was planned. Raises Fell."""
    for device in ("gpu", "cpu"):
        _counts(run, device)
    _queues(run)
    _tables(run, output)
    _writes(run, output)
    _watermark(run, output)
    _unverified(run, output)
    done = output.scheduled or output.preempted or output.blocks_to_swap_in
    if run.scheduler.has_unfinished() and not done:
        first = next(iter([*run.scheduler.swapped, *run.scheduler.waiting]), None)
        name = "nobody" if first is None else first.request_id
        raise Fell(
            "I20", f"nothing is computed and nothing moves: {name} is first, and cannot go on"
        )


def check_memory(run: Run, output: SchedulerOutput) -> None:
    """After blocks were moved and words written. Raises Fell."""
    for entry in output.scheduled:
        fed = [*entry.seq.token_ids, *entry.drafts]
        _content(run, entry.seq, fed[: entry.start + entry.num_tokens])
    for group in run.scheduler.groups.values():
        for seq in group.unfinished:
            if run.blocks.device(seq.seq_id) == "cpu":
                _content(run, seq, seq.token_ids[: seq.num_computed_tokens])
    _cache(run, output)


def check_outcome(run: Run) -> None:
    """After drawn tokens were taken in. Raises Fell."""
    for group in run.groups.values():
        if not group.beam_search:
            for seq in group.seqs:
                _output(run, group.request_id, seq)
    if not run.scheduler.has_unfinished():
        for pool in (run.blocks.gpu, run.blocks.cpu):
            free = Counter(pool.free_blocks)
            for block, _ in enumerate(pool.ref_counts):
                if free[block] != 1:
                    is_so = "not free" if free[block] == 0 else "free twice"
                    of = f"block {block} of the {pool.device.upper()}"
                    raise Fell("I9", f"nobody is left, and {of} is {is_so}")


def _output(run: Run, name: str, seq: Sequence) -> None:
    """A run without guesses says what the request says: its text, word by word."""
    says = run.requests[name].outputs[seq.index].split()
    for position, token in enumerate(seq.output_token_ids):
        wanted = says[position] if position < len(says) else None
        if run.words[token] != wanted:
            without = "ends before it" if wanted is None else f"says “{wanted}”"
            raise Fell(
                "I53",
                f"word {position + 1} of {_name(run, seq)} is “{run.words[token]}”, and without "
                f"guesses it {without}",
            )


def _sequences(run: Run) -> Iterator[Sequence]:
    for group in run.scheduler.groups.values():
        yield from group.unfinished


def _name(run: Run, seq: Sequence) -> str:
    group = next(one for one in run.groups.values() if seq in one.seqs)
    return run.name(group, seq)


def _counts(run: Run, device: str) -> None:
    pool = run.blocks.gpu if device == "gpu" else run.blocks.cpu
    held = Counter(
        block
        for seq in _sequences(run)
        if run.blocks.device(seq.seq_id) == device
        for block in set(run.blocks.block_table(seq.seq_id))
    )
    for block, count in enumerate(pool.ref_counts):
        if count != held[block]:
            raise Fell(
                "I1",
                f"{device.upper()} block {block} counts {counted(count, 'holder')}, and has "
                f"{held[block]}",
            )
    free = Counter(pool.free_blocks)
    for block, count in enumerate(pool.ref_counts):
        if free[block] != (count == 0):
            raise Fell(
                "I2",
                f"{device.upper()} block {block} is held by {count} and {free[block]} times free",
            )


def _queues(run: Run) -> None:
    scheduler = run.scheduler
    for group in scheduler.groups.values():
        places = [scheduler.waiting, scheduler.running, scheduler.swapped]
        number = sum(queue.count(group) for queue in places)
        if number != 1:
            raise Fell("I16", f"{group.request_id} is in {number} queues")


def _tables(run: Run, output: SchedulerOutput) -> None:
    ends = {entry.seq.seq_id: entry.start + entry.num_tokens for entry in output.scheduled}
    for seq in _sequences(run):
        blocks = len(run.blocks.block_table(seq.seq_id))
        tokens = ends.get(seq.seq_id, seq.num_computed_tokens)
        need = run.blocks.num_blocks_for(tokens)
        if blocks != need:
            raise Fell(
                "I6",
                f"{_name(run, seq)} has {counted(tokens, 'token')} computed or scheduled, so its "
                f"table needs {counted(need, 'block')}, and it has {blocks}",
            )


def _writes(run: Run, output: SchedulerOutput) -> None:
    for entry in output.scheduled:
        table = run.blocks.block_table(entry.seq.seq_id)
        for position in range(entry.start, entry.start + entry.num_tokens):
            logical = position // run.blocks.block_size
            _written_by_one(run, entry, position, table[logical])


def _written_by_one(run: Run, entry: ScheduledSequence, position: int, block: int) -> None:
    """Others may hold the block if they have the same tokens there: they are spared to write it."""
    fed = [*entry.seq.token_ids, *entry.drafts][: position + 1]
    for other in _sequences(run):
        holds = run.blocks.device(other.seq_id) == "gpu" and block in run.blocks.block_table(
            other.seq_id
        )
        if holds and other is not entry.seq and other.token_ids[: position + 1] != fed:
            raise Fell(
                "I10",
                f"{_name(run, entry.seq)} writes position {position} into block {block}, which "
                f"{_name(run, other)} holds, too",
            )


def _watermark(run: Run, output: SchedulerOutput) -> None:
    """Whoever was admitted in this step: its leader's first position is among what it computes.

    Other samples of a request that was preempted may come back in later steps.
    """
    wanted = int(run.scenario.watermark * run.scenario.num_gpu_blocks)
    admitted = [
        entry.group.request_id
        for entry in output.scheduled
        if entry.seq is entry.group.leader
        and entry.seq.status is SequenceStatus.RUNNING
        and entry.start == 0
    ]
    free = run.blocks.num_free_gpu_blocks
    if admitted and not output.preempted and free < wanted:
        raise Fell(
            "I18",
            f"{admitted[-1]} is admitted and leaves {counted(free, 'block')} free, where {wanted} "
            "must stay",
            who=admitted[-1],
        )


def _unverified(run: Run, output: SchedulerOutput) -> None:
    """Blocks with a draft in them are not in the cache while it is only a guess."""
    cached = {entry.block for entry in run.blocks.prefix_cache.entries}
    for entry in output.scheduled:
        first = len(entry.seq.token_ids) // run.blocks.block_size
        table = run.blocks.block_table(entry.seq.seq_id)[first:] if entry.drafts else []
        for block in cached.intersection(table):
            raise Fell(
                "I29",
                f"block {block} is in the prefix cache, and “{run.text(entry.drafts)}” is no more "
                f"than a guess of {_name(run, entry.seq)}",
            )


def _content(run: Run, seq: Sequence, tokens: list[int]) -> None:
    on_gpu = run.blocks.device(seq.seq_id) == "gpu"
    pool, place = (run.memory.gpu, "block") if on_gpu else (run.memory.cpu, "CPU block")
    table = run.blocks.block_table(seq.seq_id)
    for position, token in enumerate(tokens):
        logical, offset = divmod(position, run.blocks.block_size)
        found, wanted = pool[table[logical]][offset], run.words[token]
        if found != wanted:
            finds = "finds no word" if found is None else f"reads “{found}”"
            raise Fell(
                "I13",
                f"{_name(run, seq)} {finds} at position {position}, in {place} {table[logical]}, "
                f"where its text has “{wanted}”",
            )


def _cache(run: Run, output: SchedulerOutput) -> None:
    """Blocks that are being written are offered before they are full: they are passed over."""
    tables = {
        block for entry in output.scheduled for block in run.blocks.block_table(entry.seq.seq_id)
    }
    for entry in run.blocks.prefix_cache.entries:
        if entry.block in tables:
            continue
        wanted = [run.words[int(token)] for token in entry.prefix[-run.blocks.block_size :]]
        if run.memory.gpu[entry.block] != wanted:
            raise Fell(
                "I25",
                f"the cache says that block {entry.block} holds “{' '.join(wanted)}”, but it holds "
                f"“{' '.join(word or '–' for word in run.memory.gpu[entry.block])}”",
            )
