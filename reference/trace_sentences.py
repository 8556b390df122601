"""What just happened, and why, in words: the captions of a trace.

A caption says only what can be read off the plan of a step, and off the block tables before and
after it.

>>> listed(["A"]), listed(["A", "B", "C"]), blocks([7]), blocks([7, 1])
('A', 'A, B and C', 'block 7', 'blocks 7 and 1')
"""

from collections.abc import Iterable, Mapping

from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import Sequence, SequenceGroup, SequenceStatus
from reference.trace_run import Run

WAITING = SequenceStatus.WAITING
RUNNING = SequenceStatus.RUNNING
SWAPPED = SequenceStatus.SWAPPED


def listed(items: Iterable[object]) -> str:
    *most, last = [str(item) for item in items]
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def blocks(numbers: list[int]) -> str:
    return f"block{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


class Standing:
    """How things stand at a moment: tables by seq_id, and in which queue each request is."""

    def __init__(self, run: Run) -> None:
        self.run = run
        groups = run.scheduler.groups.values()
        self.statuses = {group.request_id: group.leader.status for group in groups}
        self.tables = {
            seq.seq_id: run.blocks.block_table(seq.seq_id)
            for group in groups
            for seq in group.unfinished
        }
        self.cached = {entry.block for entry in run.blocks.prefix_cache.entries}
        self.names = {seq.seq_id: run.name(seq) for group in groups for seq in group.unfinished}

    def was(self, group: SequenceGroup, status: SequenceStatus) -> bool:
        return self.statuses[group.request_id] is status

    def holders(self, block: int) -> list[str]:
        return [self.names[seq_id] for seq_id, table in self.tables.items() if block in table]

    def taken_since(self, seq: Sequence) -> list[int]:
        """The blocks that a sequence has now and had not then."""
        had = self.tables.get(seq.seq_id, [])
        return [block for block in self.run.blocks.block_table(seq.seq_id) if block not in had]


def is_plain(output: SchedulerOutput, before: Standing) -> bool:
    """Did nobody come, go, or take a block?"""
    return (
        bool(output.scheduled)
        and not output.preempted
        and all(
            before.was(entry.group, RUNNING)
            and not before.taken_since(entry.seq)
            and entry.num_tokens == 1
            for entry in output.scheduled
        )
    )


def arrival(group: SequenceGroup) -> str:
    samples = f" It asks for {group.num_samples} samples." if group.num_samples > 1 else ""
    number = counted(group.prompt_len, "token")
    return f"{group.request_id} arrives with a prompt of {number}, and waits.{samples}"


def plan(output: SchedulerOutput, before: Standing) -> str:
    """The scheduler's decisions of a step."""
    run = before.run
    if not output.scheduled:
        return _nothing(run)
    said = [_preempted(name, mode, before) for name, mode in output.preempted]
    come_back = [group for group in run.scheduler.running if before.was(group, SWAPPED)]
    said += [_swapped_in(group, run) for group in come_back]
    for entry in output.scheduled:
        if before.was(entry.group, WAITING):
            said.append(_admitted(entry, before))
        elif entry.group not in come_back:
            said.append(_goes_on(entry, before, dict(output.blocks_to_copy)))
    said += [_waits(group, before) for group in run.scheduler.waiting[:1]]
    return " ".join(sentence for sentence in said if sentence)


def _nothing(run: Run) -> str:
    head, *behind = run.scheduler.waiting
    need = run.blocks.num_blocks_for(head.prompt_len)
    there = counted(run.blocks.num_gpu_blocks, "block")
    return (
        f"{head.request_id}, at the head of the queue, needs {need} blocks, and the whole pool has "
        f"{there}: it can never be admitted. {listed(group.request_id for group in behind)} would "
        "fit, but nobody overtakes. Nothing is computed in this step, nor in any after it."
    )


def _preempted(name: str, mode: str, before: Standing) -> str:
    group = before.run.groups[name]
    lost = before.tables[group.leader.seq_id]
    why = f"No block is free for a new token, so {name}, who came last, gives way: "
    if mode == "swap":
        to = before.run.blocks.block_table(group.leader.seq_id)
        return why + f"{blocks(lost)} are to be copied to {blocks(to)} of the CPU."
    number = counted(len(group.leader.token_ids), "token")
    return why + f"{blocks(lost)} are dropped. Its {number} are known and will be computed again."


def _swapped_in(group: SequenceGroup, run: Run) -> str:
    table = run.blocks.block_table(group.leader.seq_id)
    return (
        f"There is room again. {group.request_id} comes back from the CPU, into {blocks(table)}: "
        "other blocks than before, and only its table has to know."
    )


def _admitted(entry: ScheduledSequence, before: Standing) -> str:
    name, table = entry.group.request_id, before.run.blocks.block_table(entry.seq.seq_id)
    size = before.run.blocks.block_size
    hits, new = table[: entry.start // size], table[entry.start // size :]
    known = counted(len(entry.seq.token_ids), "token")
    if hits:
        holders = before.holders(hits[0])
        whose = (
            f"{listed(holders)} holds them" if holders else "nobody holds them, but they are kept"
        )
        return (
            f"{name} is admitted. Its first {entry.start} tokens are those of {blocks(hits)}; "
            f"{whose}, so they need no computing. For the other {entry.num_tokens} tokens {name} "
            f"takes {blocks(new)}."
        )
    forgotten = sorted(before.cached.intersection(new))
    if forgotten:
        return (
            f"{name} is admitted, and takes the blocks that were free for longest, {listed(new)}. "
            f"What {blocks(forgotten)} held will be overwritten, so it is forgotten."
        )
    if entry.num_tokens < len(entry.seq.token_ids):
        return (
            f"{name} is admitted with a chunk: {entry.num_tokens} of its {known} is what the "
            f"step's budget leaves. It takes {blocks(new)}."
        )
    again, what = "", known
    if entry.seq.output_len:
        again, what = " again", f"{known}, of prompt and output alike,"
    number = counted(len(new), "block")
    return f"{name} is admitted{again}: its {what} need {number}. It takes {blocks(new)}."


def _goes_on(entry: ScheduledSequence, before: Standing, copies: Mapping[int, int]) -> str:
    run, name, taken = before.run, before.run.name(entry.seq), before.taken_since(entry.seq)
    logical = entry.start // run.blocks.block_size
    old = before.tables[entry.seq.seq_id]
    if logical < len(old) and old[logical] in copies and taken == [copies[old[logical]]]:
        return (
            f"{name} is about to write into block {old[logical]}, which it shares. Copy on write: "
            f"it gets block {taken[0]} for a copy of its own, and lets go of block {old[logical]}."
        )
    if entry.num_tokens > 1:
        end = entry.start + entry.num_tokens
        return f"{name} goes on with tokens {entry.start + 1} to {end}, and takes {blocks(taken)}."
    if taken:
        return f"{name}'s next token is the first of a new block: it takes {blocks(taken)}."
    if old[logical] in copies:
        return f"{name} is alone in block {old[logical]} now, and will write there in place."
    return ""


def _waits(group: SequenceGroup, before: Standing) -> str:
    name, run = group.request_id, before.run
    if not before.was(group, WAITING):
        return ""
    if run.scheduler.swapped:
        out = run.scheduler.swapped[0].request_id
        return f"{name} waits: nobody is admitted while {out} is swapped out."
    need = counted(run.blocks.num_blocks_for(len(group.leader.token_ids)), "block")
    return f"{name} waits: it needs {need}, and {_free(run)} free."


def _free(run: Run) -> str:
    number = run.blocks.num_free_gpu_blocks
    return {0: "none is", 1: "one is"}.get(number, f"{number} are")


def moved(output: SchedulerOutput) -> str:
    """The blocks that are copied before the model runs."""
    said = [f"CPU block {a} is copied to block {b}" for a, b in output.blocks_to_swap_in]
    said += [f"block {a} is copied to CPU block {b}" for a, b in output.blocks_to_swap_out]
    said += [f"block {a} is copied to block {b}" for a, b in output.blocks_to_copy]
    text = listed(said)
    return f"{text[0].upper()}{text[1:]}, before anything is written."


def written(output: SchedulerOutput, run: Run) -> str:
    said = [f"{_what(entry, run)} ({blocks(_where(entry, run))})" for entry in output.scheduled]
    return f"The model runs, and writes the keys and values of {listed(said)}."


def _what(entry: ScheduledSequence, run: Run) -> str:
    if entry.num_tokens == 1:
        return f"{run.name(entry.seq)}'s “{run.words[entry.seq.token_ids[entry.start]]}”"
    return f"{entry.num_tokens} tokens of {run.name(entry.seq)}"


def _where(entry: ScheduledSequence, run: Run) -> list[int]:
    size, end = run.blocks.block_size, entry.start + entry.num_tokens
    return run.blocks.block_table(entry.seq.seq_id)[entry.start // size : -(-end // size)]


def drawn(output: SchedulerOutput, words: Mapping[int, list[str]], held: Standing) -> str:
    """After the step: the new words, the forks, and the blocks of who has ended."""
    run = held.run
    said = [
        _forked(entry.group, words[entry.seq.seq_id], run)
        for entry in output.scheduled
        if entry.num_samples > 1
    ]
    singles = [entry for entry in output.scheduled if entry.num_samples == 1]
    if singles:
        draws = [f"{run.name(e.seq)} draws “{words[e.seq.seq_id][0]}”" for e in singles]
        said.append(f"{listed(draws)}.")
    chunks = [entry.group.request_id for entry in output.scheduled if entry.num_samples == 0]
    if chunks:
        said.append(f"{listed(chunks)} draws nothing: there is more of its prompt to compute.")
    return " ".join([*said, *_endings(output, held)])


def written_and_drawn(
    output: SchedulerOutput, words: Mapping[int, list[str]], held: Standing
) -> str:
    """A plain step, in which each sequence wrote one word and drew the next."""
    said = []
    for entry in output.scheduled:
        name, block = held.names[entry.seq.seq_id], held.tables[entry.seq.seq_id][-1]
        old, new = held.run.words[entry.seq.token_ids[entry.start]], words[entry.seq.seq_id][0]
        said.append(f"{name} writes “{old}” into block {block}, which it has, and draws “{new}”.")
    return " ".join([*said, *_endings(output, held)])


def _forked(group: SequenceGroup, words: list[str], run: Run) -> str:
    table = run.blocks.block_table(group.leader.seq_id)
    new = listed(run.name(seq) for seq in group.seqs[1:])
    return (
        f"{listed(f'“{word}”' for word in words)} are drawn, and {group.request_id} forks. {new} "
        f"gets a copy of the table, not of the blocks: {blocks(table)} have two holders now."
    )


def _endings(output: SchedulerOutput, held: Standing) -> list[str]:
    return [_ended(entry.seq, held) for entry in output.scheduled if entry.seq.finished]


def _ended(seq: Sequence, held: Standing) -> str:
    run, table = held.run, held.tables[seq.seq_id]
    said = f"{run.name(seq)} has ended, and lets go of {blocks(table)}."
    still = [block for block in table if run.blocks.ref_count(block) > 0]
    if still:
        others = Standing(run).holders(still[0])
        said += f" {listed(others)} still holds {blocks(still)}."
    elif run.blocks.enable_prefix_caching:
        said += " They are free, but the full ones are remembered until somebody needs the room."
    return said
