"""What the scheduler has decided, and why, in words: the captions of a trace.

A caption says only what can be read off the plan of a step, and off the block tables before and
after it. (What came of it is told by `trace_outcomes`.)

>>> listed([]), listed(["A"]), listed(["A", "B", "C"])
('nobody', 'A', 'A, B and C')
>>> blocks([]), blocks([7]), blocks([7, 1])
('no block', 'block 7', 'blocks 7 and 1')
"""

from collections.abc import Iterable

from playground.trace_run import Run
from reference.adapter_slots import Adapter
from reference.admission import blocks_at_most
from reference.blocks import BlockPair
from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import Sequence, SequenceGroup, SequenceStatus

WAITING = SequenceStatus.WAITING
RUNNING = SequenceStatus.RUNNING
SWAPPED = SequenceStatus.SWAPPED


def listed(items: Iterable[object]) -> str:
    names = [str(item) for item in items]
    if not names:
        return "nobody"
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def blocks(numbers: list[int]) -> str:
    if not numbers:
        return "no block"
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
        self.hypotheses = [seq for group in groups for seq in group.hypotheses]
        self.cached = {entry.block for entry in run.blocks.prefix_cache.entries}
        self.adapters = list(run.scheduler.slots.names)
        self.names = {
            seq.seq_id: run.name(group, seq) for group in groups for seq in group.unfinished
        }

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
            and not entry.group.beam_search
            and not before.taken_since(entry.seq)
            and entry.num_tokens == entry.num_samples == 1
            for entry in output.scheduled
        )
    )


def arrival(group: SequenceGroup, run: Run) -> str:
    number = counted(group.prompt_len, "token")
    beside = "" if group.adapter is None else f" for the adapter {group.adapter}"
    said = f"{group.request_id} arrives with a prompt of {number}{beside}, and waits."
    if group.beam_search:
        return f"{said} It asks for a beam search that is {group.num_samples} wide."
    if group.num_samples == 1:
        return said
    said += f" It asks for {group.num_samples} samples."
    return said if group.part_size == group.num_samples else f"{said} {_in_parts(group, run)}"


def _in_parts(group: SequenceGroup, run: Run) -> str:
    """Why not all samples run at once (`reference.admission`)."""
    most = blocks_at_most(
        group.prompt_len,
        group.params.max_tokens,
        group.num_samples,
        run.blocks.block_size,
        run.scheduler.config.max_model_len,
    )
    spare = counted(group.num_samples + run.blocks.watermark_blocks, "block")
    return (
        f"All at once may come to hold {counted(most, 'block')}, and {spare} must be to spare: "
        f"more than the {run.blocks.num_gpu_blocks} that there are. So they run "
        f"{group.part_size} at a time: no more can be promised to end."
    )


def plan(output: SchedulerOutput, before: Standing) -> str:
    """The scheduler's decisions of a step."""
    run = before.run
    if not output.scheduled and not output.preempted:
        return _nothing(run)
    said = [_preempted(name, mode, before) for name, mode in output.preempted]
    come_back = [group for group in run.scheduler.running if before.was(group, SWAPPED)]
    for group in come_back:
        said += [_swapped_in(group, run), _slot(group, before)]
    for entry in output.scheduled:
        if before.was(entry.group, WAITING):
            said += [_admitted(entry, before), _slot(entry.group, before)]
            said.append(_no_hit(entry, before))
        elif entry.group not in come_back:
            said.append(_goes_on(entry, before, output.blocks_to_copy))
    said += [_waits(group, output, before) for group in run.scheduler.waiting[:1]]
    return " ".join(sentence for sentence in said if sentence)


def _nothing(run: Run) -> str:
    head, *behind = [*run.scheduler.swapped, *run.scheduler.waiting]
    need = counted(run.blocks.num_blocks_for(len(head.leader.token_ids)), "block")
    there = counted(run.blocks.num_gpu_blocks, "block")
    said = (
        f"{head.request_id}, at the head of the queue, needs {need}, and the whole pool has "
        f"{there}: it can never be admitted."
    )
    if behind:
        names = listed(group.request_id for group in behind)
        said += f" {names} would fit, but nobody overtakes."
    return f"{said} Nothing is computed in this step, nor in any after it."


def _preempted(name: str, mode: str, before: Standing) -> str:
    group = before.run.groups[name]
    lost = before.tables[group.leader.seq_id]
    are = "is" if len(lost) == 1 else "are"
    why = f"No block is free for a new token, so {name}, who came last, gives way: "
    if mode == "swap":
        to = before.run.blocks.block_table(group.leader.seq_id)
        return why + f"{blocks(lost)} {are} to be copied to {blocks(to)} of the CPU."
    number = counted(len(group.leader.token_ids), "token")
    return why + f"{blocks(lost)} {are} dropped. Its {number} are known and will be computed again."


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
        others = "token" if entry.num_tokens == 1 else f"{entry.num_tokens} tokens"
        whose = (
            f"{listed(holders)} holds them" if holders else "nobody holds them, but they are kept"
        )
        return (
            f"{name} is admitted. Its first {entry.start} tokens are those of {blocks(hits)}; "
            f"{whose}, so they need no computing. For the other {others} {name} takes "
            f"{blocks(new)}."
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


def users(run: Run, adapter: Adapter | None) -> list[str]:
    """The running requests with an adapter."""
    running = run.scheduler.running
    return [group.request_id for group in running if adapter and group.adapter == adapter]


def _slot(group: SequenceGroup, before: Standing) -> str:
    """Where the adapter of a request that runs now lies, and what has lain there."""
    adapter, slot = group.adapter, group.adapter_slot
    if adapter is None:
        return ""
    lay = before.adapters[slot - 1]
    if lay is None:
        return f"Its adapter {adapter} is brought to slot {slot}."
    if lay != adapter:
        return f"Its adapter {adapter} takes slot {slot} from {lay}, which nobody uses."
    others = [name for name in users(before.run, adapter) if name != group.request_id]
    whose = f", which {listed(others)} {'uses' if len(others) == 1 else 'use'}" if others else ""
    return f"Its adapter {adapter} lies in slot {slot}{whose}: nothing is brought."


def _no_hit(entry: ScheduledSequence, before: Standing) -> str:
    """Blocks that have its first words, computed with another adapter."""
    run = before.run
    words, salt = tuple(entry.seq.token_ids[: run.blocks.block_size]), entry.group.salt
    others = [
        f"block {one.block} ({one.salt[0] if isinstance(one.salt, tuple) else 'no adapter'})"
        for one in run.blocks.prefix_cache.entries
        if one.block in before.cached and one.prefix == words and one.salt != salt
    ]
    if entry.start or not others:
        return ""
    return f"The same words in {listed(others)} are no hit: their keys are others."


def _guesses(entry: ScheduledSequence, before: Standing) -> str:
    """Where its last words stood before, and which of the words behind them are fed as guesses."""
    run, seq, taken = before.run, entry.seq, before.taken_since(entry.seq)
    guessing = run.scenario.guessing
    match = guessing.match(seq.token_ids) if guessing else None
    assert match is not None, "drafts without a place where they stood"
    start, number = match
    name, end = run.name(entry.group, seq), run.text(seq.token_ids[-number:])
    said = (
        f"{name} ends in “{end}”, which stood at position {start} before. So what came behind it "
        f"is guessed: “{run.text(entry.drafts)}”"
    )
    left = len(run.guesses[seq.seq_id]) - entry.num_drafts
    if left:
        said += f", and there is no room for {left} more"
    return f"{said}. It takes {blocks(taken)} for that." if taken else f"{said}."


def _goes_on(entry: ScheduledSequence, before: Standing, copies: list[BlockPair]) -> str:
    if entry.drafts:
        return _guesses(entry, before)
    run, taken = before.run, before.taken_since(entry.seq)
    name, old = run.name(entry.group, entry.seq), before.tables[entry.seq.seq_id]
    logical = entry.start // run.blocks.block_size
    block = old[logical] if logical < len(old) else None
    for source, copy in copies:
        if source == block and taken == [copy]:
            return (
                f"{name} is about to write into block {block}, which it shares. Copy on write: it "
                f"gets a copy of its own, block {copy}."
            )
    if entry.num_tokens > 1:
        end = entry.start + entry.num_tokens
        said = f"{name} goes on with tokens {entry.start + 1} to {end}"
        return f"{said}, and takes {blocks(taken)}." if taken else f"{said}, in blocks that it has."
    if taken:
        return f"{name}'s next token is the first of a new block: it takes {blocks(taken)}."
    if block in [source for source, _ in copies]:
        return f"{name} is alone in block {block} now, and will write there in place."
    return ""


def _waits(group: SequenceGroup, output: SchedulerOutput, before: Standing) -> str:
    name, run = group.request_id, before.run
    if not before.was(group, WAITING):
        return ""
    if run.scheduler.swapped:
        out = run.scheduler.swapped[0].request_id
        return f"{name} waits: nobody is admitted while {out} is swapped out."
    in_use = [other.adapter for other in run.scheduler.running]
    if not run.scheduler.slots.has_room_for(group.adapter, in_use):
        return _waits_for_a_slot(group, run)
    budget = run.scheduler.config.max_num_batched_tokens
    if output.num_batched_tokens == budget:
        return f"{name} waits: the step's {counted(budget, 'token')} are spent on others."
    need, there = run.blocks.num_blocks_for(len(group.leader.token_ids)), _free(run)
    said = f"{name} waits: it needs {counted(need, 'block')}, and {there} free"
    reserve = run.blocks.watermark_blocks
    if need <= run.blocks.num_free_gpu_blocks < need + reserve:
        said += f", of which {reserve} must stay free (the watermark)"
    return f"{said}."


def _waits_for_a_slot(group: SequenceGroup, run: Run) -> str:
    slots = run.scheduler.slots.names
    used = listed(f"{adapter} ({listed(users(run, adapter))})" for adapter in slots)
    said = f"{group.request_id} waits: its adapter {group.adapter} has no slot. In use: {used}."
    behind = [other.request_id for other in run.scheduler.waiting[1:]]
    if not behind:
        return said
    wait = "waits" if len(behind) == 1 else "wait"
    return f"{said} {listed(behind)} {wait} behind {group.request_id}: nobody overtakes."


def _free(run: Run) -> str:
    number = run.blocks.num_free_gpu_blocks
    return {0: "none is", 1: "one is"}.get(number, f"{number} are")
