"""A trace: what the reference engine did, moment by moment, for the replay page of the docs.

    python -m playground.trace SCENARIO [--output FILE]      python -m playground.trace --all FOLDER

A step has up to four moments: the scheduler's *plan* (the books: queues, tables, counts), the
blocks that are *moved* (copied or swapped), what the model has *written*, and what was *drawn*. A
step in which every sequence just adds a word to a block that it has is one moment. Each moment is
the whole state, so that a reader can look at any of them first.

>>> trace = record(SCENARIOS["copy-on-write"])
>>> [(one["step"], one["kind"]) for one in trace["moments"]][:7]
... # doctest: +NORMALIZE_WHITESPACE
[(1, 'arrive'), (1, 'plan'), (1, 'written'), (1, 'drawn'),
 (2, 'plan'), (2, 'moved'), (2, 'written')]
>>> print(trace["moments"][3]["says"][:52])
“fathers” and “mothers” are drawn, and A forks. A2 g
>>> trace["moments"][4]["moves"]
[{'kind': 'copy', 'from': 1, 'to': 3}]
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

from playground.trace_outcomes import drawn, moved, written, written_and_drawn
from playground.trace_run import Run
from playground.trace_scenarios import SCENARIOS, Scenario
from playground.trace_sentences import Standing, arrival, is_plain, plan, users
from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import Sequence, SequenceGroup

Moment = dict[str, Any]


def record(scenario: Scenario) -> dict[str, Any]:
    """Run a scenario to its end; its trace, ready to be written as JSON."""
    run = Run(scenario)
    return head(run) | {"moments": list(moments(run))}


def head(run: Run) -> dict[str, Any]:
    """What a trace says beside its moments."""
    scenario = run.scenario
    return {
        "name": scenario.name,
        "title": scenario.title,
        "about": scenario.about,
        "block_size": scenario.block_size,
        "budget": run.scheduler.config.max_num_batched_tokens,
        "fifo": scenario.enable_prefix_caching,
        "requests": [request.name for request in scenario.requests],
    }


def moments(run: Run) -> Iterator[Moment]:
    """Its moments, each when it has come."""
    for step in range(1, run.scenario.most_steps + 1):
        arrived = run.arrivals(step)
        if arrived:
            says = " ".join(arrival(group, run) for group in arrived)
            yield moment(run, step, "arrive", says)
        if run.scheduler.has_unfinished():
            yield from _step(run, step, alone=not arrived)
        elif run.all_have_come(step):
            break


def _step(run: Run, step: int, *, alone: bool) -> Iterable[Moment]:
    """One step of the engine (`ReferenceEngine.step`), with a look at the state in between."""
    before = Standing(run)
    run.guess()
    output = run.scheduler.schedule()
    plain = alone and is_plain(output, before)
    says = "" if plain else plan(output, before)
    if says:
        yield moment(run, step, "plan", says, output)
    pairs = output.blocks_to_swap_in, output.blocks_to_swap_out, output.blocks_to_copy
    run.memory.begin_step(*pairs)
    if any(pairs):
        yield moment(run, step, "moved", moved(output), output)
    if not output.scheduled:
        return
    run.write(output.scheduled)
    if not plain:
        yield moment(run, step, "written", written(output, run), output, has_written=True)
    held = Standing(run)
    tokens = {entry.seq.seq_id: run.draw(entry) for entry in output.scheduled}
    run.scheduler.update(tokens)
    words = {
        entry.seq.seq_id: run.text(tokens[entry.seq.seq_id]).split()
        for entry in output.scheduled
        if not entry.group.beam_search
    }
    says = (written_and_drawn if plain else drawn)(output, words, held)
    yield moment(run, step, "drawn", says)


def moment(
    run: Run,
    step: int,
    kind: str,
    says: str,
    output: SchedulerOutput | None = None,
    *,
    has_written: bool = False,
) -> Moment:
    """The whole state. `output` is the plan that is being carried out, None between steps."""
    output = output or SchedulerOutput()
    entries = {entry.seq.seq_id: entry for entry in output.scheduled}
    scheduler, allocators = run.scheduler, run.blocks
    finished = [name for name in run.groups if name not in scheduler.groups]
    return {
        "step": step,
        "kind": kind,
        "says": says,
        "tokens": output.num_batched_tokens,
        "moves": [
            {"kind": kind, "from": source, "to": target}
            for kind, pairs in (
                ("in", output.blocks_to_swap_in),
                ("out", output.blocks_to_swap_out),
                ("copy", output.blocks_to_copy),
            )
            for source, target in pairs
        ],
        "queues": {
            "waiting": _names(scheduler.waiting),
            "running": _names(scheduler.running),
            "swapped": _names(scheduler.swapped),
            "finished": finished,
        },
        **_slots(run),
        "seqs": [
            _sequence(run, group, seq, entries.get(seq.seq_id), has_written)
            for group in run.groups.values()
            for seq in run.sequences(group)
        ],
        "gpu": _pool(allocators.gpu.ref_counts, run.memory.gpu),
        "cpu": _pool(allocators.cpu.ref_counts, run.memory.cpu),
        "free": list(allocators.gpu.free_blocks),
        "cached": sorted(entry.block for entry in allocators.prefix_cache.entries),
    }


def _names(queue: Iterable[SequenceGroup]) -> list[str]:
    return [group.request_id for group in queue]


def _slots(run: Run) -> Moment:
    """What lies in each slot for adapters, and who uses it; nothing where there are no slots."""
    slots = [
        {"adapter": name or "", "users": users(run, name)} for name in run.scheduler.slots.names
    ]
    return {"slots": slots} if slots else {}


def _pool(ref_counts: SequenceOf[int], contents: SequenceOf[Any]) -> list[Mapping[str, Any]]:
    return [
        {"refs": refs, "holds": list(words) if any(words) else []}
        for refs, words in zip(ref_counts, contents, strict=True)
    ]


def _sequence(
    run: Run,
    group: SequenceGroup,
    seq: Sequence,
    entry: ScheduledSequence | None,
    has_written: bool,
) -> Mapping[str, Any]:
    """`computed` counts its tokens in memory; `now` are the positions that this step computes.

    At the last of these stand its `drafts`, if it has any.
    """
    now = (entry.start, entry.start + entry.num_tokens) if entry else ()
    computed = seq.num_computed_tokens
    if entry and has_written:
        computed = entry.start + entry.num_tokens - entry.num_drafts
    found: Moment = {
        "name": run.name(group, seq),
        "request": group.request_id,
        "status": "finished" if seq.finished else seq.status.value,
        "prompt": seq.prompt_len,
        "words": [run.words[token] for token in seq.token_ids],
        "computed": computed,
        "now": list(now),
        "device": run.blocks.device(seq.seq_id) or "",
        "table": run.blocks.block_table(seq.seq_id),
    }
    drafts = [run.words[token] for token in entry.drafts] if entry else []
    if drafts:
        found["drafts"] = drafts
    if group.adapter is not None:
        found["adapter"] = group.adapter
    return found


def as_json(trace: Mapping[str, Any]) -> str:
    """One moment a line, so that a change of one can be seen in a diff."""

    def compact(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    head = compact({key: value for key, value in trace.items() if key != "moments"})
    lines = ",\n".join(compact(one) for one in trace["moments"])
    return f'{head[:-1]},"moments":[\n{lines}\n]}}\n'


def main(arguments: SequenceOf[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Record what the reference engine does, as JSON.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("scenario", nargs="?", choices=sorted(SCENARIOS))
    what.add_argument("--all", metavar="FOLDER", type=Path, help="all scenarios, one file each")
    parser.add_argument("--output", metavar="FILE", type=Path, help="instead of printing it")
    chosen = parser.parse_args(arguments)
    if chosen.all:
        chosen.all.mkdir(parents=True, exist_ok=True)
        for name, scenario in SCENARIOS.items():
            (chosen.all / f"{name}.json").write_text(as_json(record(scenario)), encoding="utf-8")
        return
    text = as_json(record(SCENARIOS[chosen.scenario]))
    if chosen.output:
        chosen.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
