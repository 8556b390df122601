"""Writes what vLLM's V1 scheduler does as a trace that docs/tutorial/your-trace.md checks.

    tracer = Tracer(scheduler)          # vllm.v1.core.sched.scheduler.Scheduler
    ...                                 # add requests, and run the engine
    tracer.save("trace.json")

In one process (VLLM_ENABLE_V1_MULTIPROCESSING=0), an `LLM` has its scheduler at
`llm.llm_engine.engine_core.engine_core.scheduler`. For one group of KV caches, without async
scheduling, and without a connector.
"""

import json
from typing import Any

import vllm


class Tracer:
    """Stands around three methods of a scheduler, and only looks."""

    def __init__(self, scheduler: Any, about: str = "") -> None:
        self.scheduler, self.about = scheduler, about
        self.prompts: dict[str, list[int]] = {}
        self.arrived: list[str] = []
        self.steps: list[dict[str, Any]] = []
        self._add, self._plan = scheduler.add_request, scheduler.schedule
        self._take_in = scheduler.update_from_output
        scheduler.add_request, scheduler.schedule = self.add_request, self.schedule
        scheduler.update_from_output = self.update_from_output

    def add_request(self, request: Any) -> None:
        self._add(request)
        self.prompts[request.request_id] = list(request.prompt_token_ids)
        self.arrived.append(request.request_id)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        ran = [request.request_id for request in self.scheduler.running]
        output = self._plan(*args, **kwargs)
        manager, pool = self.scheduler.kv_cache_manager, self.scheduler.kv_cache_manager.block_pool
        running = [request.request_id for request in self.scheduler.running]
        first = getattr(self.scheduler, "kv_holding_waiting", ())  # not in all versions
        waiting = [request.request_id for request in (*first, *self.scheduler.waiting)]
        self.steps.append({
            "arrived": self.arrived,
            "queues": {"waiting": waiting, "running": running},
            "scheduled": [self._entry(name, number, output)
                          for name, number in output.num_scheduled_tokens.items()],
            "preempted": [name for name in ran if name in waiting],
            "copies": [[pair[0], pair[1]]
                       for pair in getattr(output, "kv_cache_block_copies", None) or ()],
            "tables": {name: manager.get_block_ids(name)[0] for name in running},
            "refs": [block.ref_cnt for block in pool.blocks],
            "free": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            "cached": [block.block_id for block in pool.blocks if block.block_hash is not None],
        })  # fmt: skip
        self.arrived = []
        return output

    def _entry(self, name: str, number: int, output: Any) -> dict[str, Any]:
        """The scheduler has counted the step's tokens as computed already."""
        request = self.scheduler.requests[name]
        drafts = list(output.scheduled_spec_decode_tokens.get(name, ()))
        start = request.num_computed_tokens - number
        known = request.num_tokens
        return {"seq": name, "start": start, "tokens": number, "drafts": drafts, "known": known}

    def update_from_output(self, output: Any, sampled: Any) -> Any:
        requests = [self.scheduler.requests[name] for name in output.num_scheduled_tokens]
        before = {request.request_id: len(request.output_token_ids) for request in requests}
        found = self._take_in(output, sampled)
        drawn = {request.request_id: list(request.output_token_ids)[before[request.request_id]:]
                 for request in requests}  # fmt: skip
        self.steps[-1]["drawn"] = {name: tokens for name, tokens in drawn.items() if tokens}
        ended = [request.request_id for request in requests if request.is_finished()]
        self.steps[-1]["finished"] = ended
        return found

    def trace(self) -> dict[str, Any]:
        scheduler, pool = self.scheduler, self.scheduler.kv_cache_manager.block_pool
        free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        return {
            "engine": {"name": "vLLM", "version": vllm.__version__},
            "about": self.about,
            "block_size": scheduler.block_size,
            "num_gpu_blocks": pool.num_gpu_blocks,
            "reserved_blocks": [pool.null_block.block_id],
            "watermark_blocks": getattr(scheduler.kv_cache_manager, "watermark_blocks", 0),
            "max_num_seqs": scheduler.max_num_running_reqs,
            "max_num_batched_tokens": scheduler.max_num_scheduled_tokens,
            "policy": scheduler.policy.value,
            "complete": not scheduler.has_unfinished_requests(),
            "requests": [{"id": name, "prompt": ids} for name, ids in self.prompts.items()],
            "steps": self.steps,
            "end": {"free": free},
        }

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.trace(), file)
