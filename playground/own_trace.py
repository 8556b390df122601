"""What the oracle does under a reader's settings, in the format that any engine's trace has.

    python -m playground.own_trace SCENE > FILE

>>> from playground.check_trace import check
>>> found = check(own_trace({"requests": [{"prompt": "To be or", "max_tokens": 3}]}))
>>> found["fell"], len(found["checked"])
([], 13)
"""

import argparse
import json
from typing import Any

from playground.scenes import SCENES
from playground.session import watched
from playground.settings import Settings
from playground.trace_run import Run
from reference.scheduler_state import SchedulerOutput


def own_trace(settings: Settings) -> dict[str, Any]:
    """Runs to the end. Raises SettingError, and what a planted fault leads to."""
    run = watched(settings)
    scenario, blocks = run.scenario, run.blocks
    steps = list(_steps(run))
    return {
        "engine": {"name": "the oracle of jax-engine", "version": "reference/"},
        "block_size": scenario.block_size,
        "num_gpu_blocks": scenario.num_gpu_blocks,
        "num_cpu_blocks": scenario.num_cpu_blocks,
        "watermark_blocks": blocks.watermark_blocks,
        "max_num_seqs": run.scheduler.config.max_num_seqs,
        "max_num_batched_tokens": run.scheduler.config.max_num_batched_tokens,
        "complete": True,
        "texts": {str(token): word for token, word in enumerate(run.words)},
        "requests": [
            {"id": name, "prompt": group.seqs[0].token_ids[: group.prompt_len]}
            for name, group in run.groups.items()
        ],
        "steps": steps,
        "end": {"free": list(blocks.gpu.free_blocks), "cpu_free": list(blocks.cpu.free_blocks)},
    }


def _steps(run: Run) -> Any:
    for number in range(1, run.scenario.most_steps + 1):
        arrived = run.arrivals(number)
        if not run.scheduler.has_unfinished():
            if run.all_have_come(number):
                return
            continue
        run.guess()
        output = run.scheduler.schedule()
        step = _planned(run, output) | {"arrived": [group.request_id for group in arrived]}
        run.memory.begin_step(
            output.blocks_to_swap_in, output.blocks_to_swap_out, output.blocks_to_copy
        )
        run.write(output.scheduled)
        before = _lengths(run)
        run.scheduler.update({e.seq.seq_id: run.draw(e) for e in output.scheduled})
        yield step | _came_of_it(run, before)


def _planned(run: Run, output: SchedulerOutput) -> dict[str, Any]:
    scheduler, blocks = run.scheduler, run.blocks
    tables: dict[str, dict[str, list[int]]] = {"gpu": {}, "cpu": {}}
    for group in scheduler.groups.values():
        for seq in group.unfinished:
            device = blocks.device(seq.seq_id)
            if device is not None:
                tables[device][str(seq.seq_id)] = blocks.block_table(seq.seq_id)
    return {
        "queues": {
            name: [group.request_id for group in getattr(scheduler, name)]
            for name in ("waiting", "running", "swapped")
        },
        "scheduled": [
            {
                "seq": str(one.seq.seq_id),
                "request": one.group.request_id,
                "start": one.start,
                "tokens": one.num_tokens,
                "drafts": list(one.drafts),
                "known": len(one.seq.token_ids),
            }
            for one in output.scheduled
        ],
        "preempted": [name for name, _ in output.preempted],
        "swap_in": [list(pair) for pair in output.blocks_to_swap_in],
        "swap_out": [list(pair) for pair in output.blocks_to_swap_out],
        "copies": [list(pair) for pair in output.blocks_to_copy],
        "tables": tables["gpu"],
        "cpu_tables": tables["cpu"],
        "refs": list(blocks.gpu.ref_counts),
        "cpu_refs": list(blocks.cpu.ref_counts),
        "free": list(blocks.gpu.free_blocks),
        "cpu_free": list(blocks.cpu.free_blocks),
        "cached": sorted(entry.block for entry in blocks.prefix_cache.entries),
    }


def _lengths(run: Run) -> dict[int, tuple[str, list[int]]]:
    """Request and tokens of each sequence that has not ended."""
    return {
        seq.seq_id: (name, list(seq.token_ids))
        for name, group in run.scheduler.groups.items()
        for seq in group.unfinished
    }


def _came_of_it(run: Run, before: dict[int, tuple[str, list[int]]]) -> dict[str, Any]:
    """Tokens, forks and ends, read off the sequences."""
    all_seqs = {seq.seq_id: seq for group in run.groups.values() for seq in group.seqs}
    now = _lengths(run)
    forked, started, drawn = {}, {}, {}
    for seq_id, seq in all_seqs.items():
        if seq_id in before:
            new = seq.token_ids[len(before[seq_id][1]) :]
            drawn[str(seq_id)] = new
        elif seq_id in now or not seq.finished:
            name, tokens = now.get(seq_id, ("", []))
            parent = _parent(name, tokens, before)
            if parent is None:
                started[str(seq_id)] = name
            else:
                forked[str(seq_id)] = str(parent)
                drawn[str(seq_id)] = tokens[len(before[parent][1]) :]
    ended = [str(seq_id) for seq_id in before if seq_id not in now]
    return {
        "forked": forked,
        "started": started,
        "drawn": {name: tokens for name, tokens in drawn.items() if tokens},
        "finished": ended,
    }


def _parent(name: str, tokens: list[int], before: dict[int, tuple[str, list[int]]]) -> int | None:
    """A sequence of the request whose tokens the new one begins with, and has one more."""
    for seq_id, (request, known) in before.items():
        if request == name and len(tokens) == len(known) + 1 and tokens[:-1] == known:
            return seq_id
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description="The oracle's trace of a scene, as JSON.")
    parser.add_argument("scene", choices=sorted(SCENES))
    print(json.dumps(own_trace(SCENES[parser.parse_args().scene]), ensure_ascii=False))


if __name__ == "__main__":
    main()
