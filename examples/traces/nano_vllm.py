"""Writes what nano-vllm's scheduler does as a trace that docs/tutorial/your-trace.md checks.

tracer = Tracer(llm.scheduler)      # nanovllm.engine.scheduler.Scheduler
...                                 # add requests, and run the engine
tracer.save("trace.json")
"""

import json
from importlib.metadata import version
from typing import Any


class Tracer:
    """Stands around three methods of a scheduler, and only looks."""

    def __init__(self, scheduler: Any, package: str = "nano-vllm", about: str = "") -> None:
        self.scheduler, self.package, self.about = scheduler, package, about
        self.prompts: dict[str, list[int]] = {}
        self.arrived: list[str] = []
        self.steps: list[dict[str, Any]] = []
        self._add, self._plan = scheduler.add, scheduler.schedule
        self._take_in = scheduler.postprocess
        scheduler.add, scheduler.schedule = self.add, self.schedule
        scheduler.postprocess = self.postprocess

    def add(self, seq: Any) -> None:
        self._add(seq)
        self.prompts[str(seq.seq_id)] = list(seq.prompt_token_ids)
        self.arrived.append(str(seq.seq_id))

    def schedule(self) -> Any:
        ran = list(self.scheduler.running)
        seqs, is_prefill = self._plan()
        manager, scheduler = self.scheduler.block_manager, self.scheduler
        there = [seq for seq in dict.fromkeys((*scheduler.waiting, *scheduler.running))]
        self.steps.append({
            "arrived": self.arrived,
            "queues": {name: [str(seq.seq_id) for seq in getattr(scheduler, name)]
                       for name in ("waiting", "running")},
            "scheduled": [self._entry(seq, is_prefill) for seq in seqs],
            "preempted": [str(seq.seq_id) for seq in ran if not seq.block_table],
            "tables": {str(seq.seq_id): list(seq.block_table)
                       for seq in there if seq.block_table},
            "refs": [block.ref_count for block in manager.blocks],
            "free": list(manager.free_block_ids),
            "cached": sorted(set(manager.hash_to_block_id.values())),
        })  # fmt: skip
        self.arrived = []
        return seqs, is_prefill

    def _entry(self, seq: Any, is_prefill: bool) -> dict[str, Any]:
        """A prompt is computed behind its cached blocks; later, only the last token."""
        start = seq.num_cached_tokens if is_prefill else len(seq) - 1
        name, known = str(seq.seq_id), len(seq)
        return {"seq": name, "start": start, "tokens": known - start, "known": known}

    def postprocess(self, seqs: Any, token_ids: list[int]) -> Any:
        before = {seq: len(seq) for seq in seqs}
        found = self._take_in(seqs, token_ids)
        self.steps[-1]["drawn"] = {str(seq.seq_id): seq.token_ids[before[seq] :] for seq in seqs}
        self.steps[-1]["finished"] = [str(seq.seq_id) for seq in seqs if seq.is_finished]
        return found

    def trace(self) -> dict[str, Any]:
        scheduler, manager = self.scheduler, self.scheduler.block_manager
        return {
            "engine": {"name": self.package, "version": version(self.package)},
            "about": self.about,
            "block_size": manager.block_size,
            "num_gpu_blocks": len(manager.blocks),
            "max_num_seqs": scheduler.max_num_seqs,
            "max_num_batched_tokens": scheduler.max_num_batched_tokens,
            "complete": scheduler.is_finished(),
            "requests": [{"id": name, "prompt": ids} for name, ids in self.prompts.items()],
            "steps": self.steps,
            "end": {"free": list(manager.free_block_ids)},
        }

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.trace(), file)
