"""Bugs that show when time passes, things fail and clients vanish: the simulation must see them."""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/simulation/test_simulation.py",)
CALLS_TESTS = ("tests/engine/test_engine_loop.py", "tests/engine/test_calls.py", *TESTS)
ENGINE, CORE, WORKER = "jax_engine/engine", "jax_engine/core", "jax_engine/worker"

DEADLINES: list[Mutant] = plant(f"{ENGINE}/running_requests.py", TESTS,
    ("return self._numbers.get(entry[2]) == entry[1]", "return entry[2] in self._numbers",
     "a deadline outlives its request and ends the next one of that id"),
    ("                found.append(entry[2])",
     "                found.append(entry[2])\n                break",
     "of several deadlines that have passed one a step counts"),
)  # fmt: skip

RUNNING: list[Mutant] = plant(f"{ENGINE}/running_requests.py", TESTS,
    ("            self._num_added = number\n            raise",
     "            self._num_added = number + 1\n            raise",
     "a request that was not accepted takes a number"),
    ("self.deadlines.add(request_id, arrival + request.timeout)",
     "self.deadlines.add(request_id, now + request.timeout)",
     "time counts from when a request is added, not from its arrival"),
    ("        found = self.ended\n        found += [",
     "        found = [*self.ended]\n        found[:0] = [",
     "an id that is used again gets the news before the end of the first"),
    ("        self.lost = [(one,", "        self.ended += [(one,",
     "readers get the ends of a failed step, and not its failure"),
)  # fmt: skip

PIPELINE: list[Mutant] = plant(f"{ENGINE}/pipeline.py", TESTS,
    ("        if ahead.is_empty:\n", "        if not ahead.scheduled:\n",
     "a step that only swaps moves nothing"),
)  # fmt: skip

LOOP: list[Mutant] = plant(f"{ENGINE}/llm_engine.py", TESTS,
    ('self._running.end(request_id, "timeout", now)',
     'self._running.end(request_id, "timeout", now)\n                break',
     "of two requests out of time one goes on"),
)  # fmt: skip

CALLS: list[Mutant] = [
    *plant(f"{ENGINE}/llm_engine.py", CALLS_TESTS,
        ("outputs_of(before + last)[len(before) :]", "outputs_of(last)",
         "the output of an aborted request lacks what was kept for step"),
    ),
    *plant(f"{ENGINE}/engine_loop.py", CALLS_TESTS,
        ("                job = self._inbox.get_nowait()\n",
         "                job = self._inbox.get()\n",
         "of two threads that refuse jobs one waits for ever"),
        ("self._readers.items() if one is reader])",
         "self._readers.items() if one is reader][1:])",
         "one request goes on when its call has ended"),
        (" for request_id, one in self._readers.items() if one is reader]",
         " for request_id in self._readers]", "a call that ends ends all others"),
        ("        self._deliver(self.engine.abort_updates(request_ids))\n",
         "        self.engine.abort_updates(request_ids)\n", "who waits is not told of an abort"),
    ),
    *plant(f"{ENGINE}/calls.py", CALLS_TESTS,
        ("        for call in calls:\n            loop.leave(call)",
         "        for call in calls[1:]:\n            loop.leave(call)",
         "Ctrl-C leaves one call's requests"),
        ("return [found[request_id] for request_id in self.request_ids]",
         "return [found[request_id] for request_id in sorted(self.request_ids)]",
         "outputs come in the order of their names"),
    ),
]  # fmt: skip


CONTROLLER: list[Mutant] = [
    *plant(f"{CORE}/scheduler.py", TESTS,
        ("seq.pending = -(row + 1)", "seq.pending = -(row + 1) if row < 2 else -1",
         "a token of the step before is taken from another row"),
    ),
    *plant(f"{CORE}/scheduler_state.py", TESTS,
        ("        del queue[bisect_left(queue, group.key, key=by_key)]\n",
         "        if queue is self.running:\n"
         "            del queue[bisect_left(queue, group.key, key=by_key)]\n",
         "what ends while the step ahead preempts it stays in its queue"),
    ),
    *plant(f"{CORE}/blocks.py", TESTS,
        ("        table.move([mapping[block] for block in old], target.device)\n"
         "        source.free_all(old)",
         "        source.free_all(old)\n"
         "        table.move([mapping[block] for block in reversed(old)], target.device)",
         "swapping turns a table around"),
    ),
]  # fmt: skip

WORKERS: list[Mutant] = [
    *plant(f"{WORKER}/kv_cache.py", TESTS,
        ("index = block // self._per_piece", "index = block // (self._per_piece + 1)",
         "two blocks of the swap space are one"),
    ),
]  # fmt: skip

MUTANTS = [
    *DEADLINES, *RUNNING, *PIPELINE, *LOOP, *CALLS, *CONTROLLER, *WORKERS
]  # fmt: skip
