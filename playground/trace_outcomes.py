"""What came of a plan, in words: blocks moved, keys and values written, words drawn."""

import math
from collections.abc import Mapping

from playground.trace_run import Run
from playground.trace_sentences import Standing, blocks, listed, users
from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import Sequence, SequenceGroup
from reference.speculation import accepted

NUMBERS = ("no", "one", "two", "three", "four")


def moved(output: SchedulerOutput) -> str:
    """The blocks that are copied before the model runs."""
    said = [f"CPU block {a} is copied to block {b}" for a, b in output.blocks_to_swap_in]
    said += [f"block {a} is copied to CPU block {b}" for a, b in output.blocks_to_swap_out]
    said += [f"block {a} is copied to block {b}" for a, b in output.blocks_to_copy]
    text = listed(said)
    return f"{_upper(text)}, before anything is written."


def written(output: SchedulerOutput, run: Run) -> str:
    said = [f"{_what(entry, run)} ({blocks(_where(entry, run))})" for entry in output.scheduled]
    return f"The model runs, and writes the keys and values of {listed(said)}."


def _what(entry: ScheduledSequence, run: Run) -> str:
    if entry.num_tokens == 1 + entry.num_drafts:
        guesses = f" and {_guesses(entry.num_drafts)}" if entry.drafts else ""
        word = run.words[entry.seq.token_ids[entry.start]]
        return f"{run.name(entry.group, entry.seq)}'s “{word}”{guesses}"
    return f"{entry.num_tokens} tokens of {run.name(entry.group, entry.seq)}"


def _where(entry: ScheduledSequence, run: Run) -> list[int]:
    size, end = run.blocks.block_size, entry.start + entry.num_tokens
    return run.blocks.block_table(entry.seq.seq_id)[entry.start // size : -(-end // size)]


def drawn(output: SchedulerOutput, words: Mapping[int, list[str]], held: Standing) -> str:
    """After the step: the new words, the forks, and the blocks of who has ended."""
    run = held.run
    said = [
        _forked(entry, words[entry.seq.seq_id], held)
        for entry in output.scheduled
        if entry.num_samples > 1
    ]
    said += [
        _selected(group, held)
        for group in dict.fromkeys(e.group for e in output.scheduled)
        if group.beam_search
    ]
    said += [_verified(e, words[e.seq.seq_id], held) for e in output.scheduled if e.drafts]
    singles = [
        entry
        for entry in output.scheduled
        if entry.num_samples == 1 and not entry.group.beam_search and not entry.drafts
    ]
    if singles:
        draws = [f"{run.name(e.group, e.seq)} draws “{words[e.seq.seq_id][0]}”" for e in singles]
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
        said.append(f"{name} writes “{old}” into its block {block}, and draws “{new}”.")
    return " ".join([*said, *_endings(output, held)])


def _guesses(number: int) -> str:
    return "1 guess" if number == 1 else f"{number} guesses"


def _share(right: int, guesses: list[str]) -> str:
    if len(guesses) > 1:
        return f"of {len(guesses)} guesses {right} {'was' if right == 1 else 'were'} right"
    return "its guess was right" if right else "its guess was not right"


def _verified(entry: ScheduledSequence, words: list[str], held: Standing) -> str:
    """Which guesses were right, what is kept, and what becomes of the blocks."""
    run, seq, size = held.run, entry.seq, held.run.blocks.block_size
    kept = len(seq.token_ids) - (entry.start + 1)
    guesses = run.text(entry.drafts).split()
    right = min(kept, len(accepted(entry.drafts, run.token_ids(" ".join(words)))) - 1)
    said = f"{held.names[seq.seq_id]} draws “{' '.join(words[:kept])}”: {_share(right, guesses)}"
    if right < kept and right < len(guesses):
        wrong = f"“{guesses[right]}” was wrong, " if len(guesses) > 1 else ""
        said += f", {wrong}and what was drawn behind it is dropped"
    elif kept < len(words):
        said += ", and what was drawn behind the end is dropped"
    said += "."
    if seq.finished:
        return said
    table, cached = run.blocks.block_table(seq.seq_id), Standing(run).cached - held.cached
    back = [block for block in held.tables[seq.seq_id] if block not in table]
    if back:
        said += (
            f" {_upper(blocks(back))} held nothing but wrong guesses, and {_are(back)} given back."
        )
    known = [block for block in table[: seq.num_computed_tokens // size] if block in cached]
    if known:
        said += f" The prefix cache knows {blocks(known)} now."
    return said


def _upper(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _are(items: list[int]) -> str:
    return "is" if len(items) == 1 else "are"


def _forked(entry: ScheduledSequence, words: list[str], held: Standing) -> str:
    group, table = entry.group, held.tables[entry.seq.seq_id]
    new = [held.run.name(group, seq) for seq in group.seqs if seq.seq_id not in held.names][
        1 - entry.num_samples :
    ]
    said = f"{listed(f'“{word}”' for word in words)} are drawn, and {group.request_id} forks. "
    said += f"{listed(new)} {'gets' if len(new) == 1 else 'get'} a copy of the table, not of the "
    have = "have" if len(table) > 1 else "has"
    return f"{said}blocks: {blocks(table)} {have} {NUMBERS[len(words)]} holders now."


def _selected(group: SequenceGroup, held: Standing) -> str:
    """What a beam search kept, and what it dropped."""
    run = held.run
    live = {run.name(group, seq): seq for seq in group.unfinished}
    said = []
    if live:
        best = [
            f"{name} “{run.text(seq.output_token_ids)}” ({math.exp(seq.cumulative_logprob):.3f})"
            for name, seq in live.items()
        ]
        said.append(f"The most probable ways to go on: {listed(best)}.")
    ended = [seq for seq in group.hypotheses if seq not in held.hypotheses]
    if ended:
        texts = listed(f"“{run.text(seq.output_token_ids)}”" for seq in ended)
        said.append(f"{texts} {'has' if len(ended) == 1 else 'have'} ended.")
    if not live:
        done = (
            f"With {len(group.hypotheses)} outputs the search is done, and lets go of all blocks."
        )
        return " ".join([*said, done])
    forks = [name for name in live if name not in held.names.values()]
    if forks:
        said.append(f"{listed(forks)} {'is a fork' if len(forks) == 1 else 'are forks'}.")
    lost = [name for name in held.names.values() if name not in live]
    if lost:
        said.append(f"{listed(lost)} fell behind: its blocks count a holder less.")
    return " ".join(said)


def _endings(output: SchedulerOutput, held: Standing) -> list[str]:
    return [
        _ended(entry.group, entry.seq, held) for entry in output.scheduled if entry.seq.finished
    ]


def _ended(group: SequenceGroup, seq: Sequence, held: Standing) -> str:
    run, table = held.run, held.tables[seq.seq_id]
    said = f"{run.name(group, seq)} has ended, and lets go of {blocks(table)}."
    still = [block for block in table if run.blocks.ref_count(block) > 0]
    if still:
        others = Standing(run).holders(still[0])
        said += f" {listed(others)} still holds {blocks(still)}."
    elif run.blocks.enable_prefix_caching:
        said += " They are free, but the full ones are remembered until somebody needs the room."
    return f"{said}{_leaves_slot(group, run)}"


def _leaves_slot(group: SequenceGroup, run: Run) -> str:
    """What becomes of an adapter whose last running request has ended."""
    adapter = group.adapter
    if adapter is None or users(run, adapter):
        return ""
    slot = run.scheduler.slots.slot_of(adapter)
    return f" Nobody uses {adapter} now. It stays in slot {slot} until the slot is wanted."
