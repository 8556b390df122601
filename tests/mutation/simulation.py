"""Bugs that show when time passes, things fail and clients vanish: the simulation must see them."""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/simulation/test_simulation.py",)
CALLS_TESTS = ("tests/engine/test_engine_loop.py", "tests/engine/test_calls.py", *TESTS)
ENGINE, CORE, WORKER = "jax_engine/engine", "jax_engine/core", "jax_engine/worker"

DEADLINES: list[Mutant] = plant(
    f"{ENGINE}/running_requests.py",
    TESTS,
    (
        "return self._numbers.get(entry[2]) == entry[1]",
        "return entry[2] in self._numbers",
        "a deadline outlives its request and ends the next one of that id",
    ),
    (
        "                found.append(entry[2])",
        "                found.append(entry[2])\n                break",
        "of several deadlines that have passed one a step counts",
    ),
)

RUNNING: list[Mutant] = plant(
    f"{ENGINE}/running_requests.py",
    TESTS,
    (
        "request.timeout)\n        self._num_added += 1\n",
        "request.timeout)\n",
        "all requests without a seed draw the same",
    ),
    (
        "            self._num_added = number\n            raise",
        "            self._num_added = number + 1\n            raise",
        "a request that was not accepted takes a number",
    ),
    (
        "self.deadlines.add(request_id, arrival + request.timeout)",
        "self.deadlines.add(request_id, now + request.timeout)",
        "time counts from when a request is added, not from its arrival",
    ),
    (
        "        self.streaming.pop(request_id, None)\n",
        "",
        "an ended request has outputs",
    ),
    (
        "        self.deadlines.remove(request_id)\n",
        "",
        "a finished request keeps its deadline",
    ),
    (
        "        self._pipeline.close(request.group.number)\n",
        "",
        "the worker keeps what it knows of ended requests",
    ),
    (
        "        found = self.ended\n        found += [",
        "        found = [*self.ended]\n        found[:0] = [",
        "an id that is used again gets the news before the end of the first",
    ),
    (
        "(self.ended if deltas else found).append",
        "found.append",
        "the last delta comes before those that were not read",
    ),
    (
        "        self._scheduler.clear()\n",
        "",
        "the scheduler goes on with requests of a failed step",
    ),
    (
        "            self._forget(request)\n        self.recorder",
        "            pass\n        self.recorder",
        "requests of a failed step are kept",
    ),
    (
        "        self.lost = [(one,",
        "        self.ended += [(one,",
        "readers get the ends of a failed step, and not its failure",
    ),
)

PIPELINE: list[Mutant] = plant(
    f"{ENGINE}/pipeline.py",
    TESTS,
    (
        "        if ahead.is_empty:\n",
        "        if not ahead.scheduled:\n",
        "a step that only swaps moves nothing",
    ),
    (
        "        self._restart = True\n        if not self._flight:",
        "        self._restart = True\n        if True:",
        "blocks are forgotten while a step is on its way",
    ),
    (
        "        self._restart = False\n        self._scheduler.recompute_all()",
        "        self._scheduler.recompute_all()",
        "blocks are forgotten again and again",
    ),
)

LOOP: list[Mutant] = plant(
    f"{ENGINE}/llm_engine.py",
    TESTS,
    (
        "            del self._running.ended[kept:]\n",
        "",
        "the ends of a failed step are told by its exception and again",
    ),
    (
        'self._running.end(request_id, "timeout", now)',
        'self._running.end(request_id, "timeout", now)\n                break',
        "of two requests out of time one goes on",
    ),
)

CALLS: list[Mutant] = [
    *plant(
        f"{ENGINE}/llm_engine.py",
        CALLS_TESTS,
        (
            "                self._unread += self._running.take_updates()\n",
            "                pass\n",
            "what came before a driver goes to its readers",
        ),
        (
            "        if driver is not None and driver != get_ident():",
            "        if False:",
            "anybody uses the engine while the loop has it",
        ),
        (
            "        with self._lock:\n            self._check_driver()\n",
            "        with self._lock:\n",
            "who has passed the check before a call begins uses the engine beside it",
        ),
        (
            "        if self.driver == get_ident():  #",
            "        if False:  #",
            "who has passed the check before a call begins waits for its steps",
        ),
        (
            "outputs_of(before + last)[len(before) :]",
            "outputs_of(last)",
            "the output of an aborted request lacks what was kept for step",
        ),
    ),
    *plant(
        f"{ENGINE}/engine_loop.py",
        CALLS_TESTS,
        (
            "                self.engine.keep(update)\n                continue",
            "                continue",
            "outputs without a reader are dropped",
        ),
        (
            "            if update[0].request_id not in self._readers:\n"
            "                self.engine.keep(update)",
            "                pass",
            "who has no reader is not told that a step failed",
        ),
        (
            "            if update[0].request_id not in self._readers:\n"
            "                self.engine.keep(update)",
            "                self.engine.keep(update)",
            "who steps next gets the ends of calls that failed",
        ),
        (
            "        self._deliver(self.engine.take_updates())  # of those who had ended before\n",
            "",
            "who is out of time is lost with the step that fails",
        ),
        (
            "            reader.fail(request_ids, _failure(error))",
            "            pass",
            "who waits is not told that a step failed",
        ),
        (
            "        self._readers.clear()\n",
            "",
            "the loop waits for requests of a failed step",
        ),
        (
            "                self._tell_missed()\n",
            "",
            "a call waits for a request that was aborted without the loop",
        ),
        (
            "        while not self._stopped and (self._jobs or not self._inbox.empty()):",
            "        while self._jobs or not self._inbox.empty():",
            "requests are accepted behind the end of the loop",
        ),
        (
            "            self._refuse_jobs(problem)\n",
            "",
            "jobs that came before the end are not refused",
        ),
        (
            "                job = self._inbox.get_nowait()\n",
            "                job = self._inbox.get()\n",
            "of two threads that refuse jobs one waits for ever",
        ),
        (
            "            self._refuse_jobs(self._end)",
            "            pass",
            "jobs that come behind the end are not refused",
        ),
        (
            "            self.engine.abort_request(list(self._readers))\n",
            "",
            "requests go on when the loop has ended",
        ),
        (
            "self._readers.items() if one is reader])",
            "self._readers.items() if one is reader][1:])",
            "one request goes on when its call has ended",
        ),
        (
            " for request_id, one in self._readers.items() if one is reader]",
            " for request_id in self._readers]",
            "a call that ends ends all others",
        ),
        (
            "        self._deliver(self.engine.abort_updates(request_ids))\n",
            "        self.engine.abort_updates(request_ids)\n",
            "who waits is not told of an abort",
        ),
        (
            "        self.engine.driver = get_ident() if self._readers else None",
            "        self.engine.driver = get_ident()",
            "the engine is refused when no call runs",
        ),
    ),
    *plant(
        f"{ENGINE}/calls.py",
        CALLS_TESTS,
        (
            "            self._num_requests = first + len(names)\n",
            "",
            "ids are given out again",
        ),
        (
            "                loop.post(partial(self._leave, loop, calls))",
            "                pass",
            "Ctrl-C does not end the call's requests",
        ),
        (
            "        for call in calls:\n            loop.leave(call)",
            "        for call in calls[1:]:\n            loop.leave(call)",
            "Ctrl-C leaves one call's requests",
        ),
        (
            "            self._enqueued = [one for one in self._enqueued if one not in calls]",
            "            pass",
            "what an interrupted enqueue has left is waited for",
        ),
        (
            "            self._enqueued.clear()",
            "            pass",
            "outputs are given to each thread that waits",
        ),
        (
            "return [found[request_id] for request_id in self.request_ids]",
            "return [found[request_id] for request_id in sorted(self.request_ids)]",
            "outputs come in the order of their names",
        ),
        (
            "                    loop.call(lambda: None)\n",
            "                    pass\n",
            "Ctrl-C does not wait for the end of the requests",
        ),
        (
            "            del update\n",
            "            pass\n",
            "an error that a call has raised keeps the engine alive",
        ),
        (
            "        loop.stop()\n",
            "        pass\n",
            "the loop goes on without its calls",
        ),
    ),
]  # fmt: skip

OUTPUTS: list[Mutant] = [
    *plant(
        f"{ENGINE}/assembler.py",
        TESTS,
        (
            "(ended and not self.end_read)",
            "ended",
            "the end of a sample is told in each delta that follows",
        ),
    ),
    *plant(
        f"{ENGINE}/results.py",
        TESTS,
        (
            'if sample.maker is not None and seq.finish_reason == "abort"',
            'if False and sample.maker is not None and seq.finish_reason == "abort"',
            "text that was held back is lost at an abort",
        ),
    ),
]

CONTROLLER: list[Mutant] = [
    *plant(
        f"{CORE}/scheduler_state.py",
        TESTS,
        (
            "for group in self.running + self.swapped:",
            "for group in self.running:",
            "what is swapped out keeps its blocks when all are forgotten",
        ),
        (
            "        self.seq_ids.clear()",
            "        pass",
            "sequences of a failed step are remembered",
        ),
        (
            "        self.manager.clear()\n",
            "",
            "blocks of a failed step are never free again",
        ),
    ),
    *plant(
        f"{CORE}/scheduler.py",
        TESTS,
        (
            "seq.pending = -(row + 1)",
            "seq.pending = -(row + 1) if row < 2 else -1",
            "a token of the step before is taken from another row",
        ),
        (
            "seq.pending, seq.in_flight = 0, False",
            "seq.in_flight = False",
            "a token that has come is waited for",
        ),
    ),
    *plant(
        f"{CORE}/scheduler_state.py",
        TESTS,
        (
            "        del queue[bisect_left(queue, group.key, key=by_key)]\n",
            "        if queue is self.running:\n"
            "            del queue[bisect_left(queue, group.key, key=by_key)]\n",
            "what ends while the step ahead preempts it stays in its queue",
        ),
    ),
    *plant(
        f"{CORE}/blocks.py",
        TESTS,
        (
            "        table.move([mapping[block] for block in old], target.device)\n"
            "        source.free_all(old)",
            "        source.free_all(old)\n"
            "        table.move([mapping[block] for block in reversed(old)], target.device)",
            "swapping turns a table around",
        ),
    ),
]

WORKERS: list[Mutant] = [
    *plant(
        f"{WORKER}/kv_cache.py",
        TESTS,
        (
            "copy[...] = self._piece(block)[block % self._per_piece]",
            "copy[...] = self._piece(block)[0]",
            "the first block of a piece of the swap space is read for all",
        ),
        (
            "index = block // self._per_piece",
            "index = block // (self._per_piece + 1)",
            "two blocks of the swap space are one",
        ),
        ("            self._pieces[index] = piece\n", "", "the swap space forgets"),
        (
            "            return False\n        return True",
            "            return True\n        return True",
            "host memory that is not there is promised",
        ),
    ),
    *plant(
        f"{WORKER}/preemption_costs.py",
        TESTS,
        (
            "    kv_cache.write(0, held)",
            "    pass",
            "measuring overwrites block 0",
        ),
        ("return seconds / (2 * count)", "return seconds / count", "a block costs both ways"),
        ("    return clock() - started", "    return clock()", "costs are the time of day"),
    ),
]

MUTANTS = [
    *DEADLINES, *RUNNING, *PIPELINE, *LOOP, *CALLS, *OUTPUTS, *CONTROLLER, *WORKERS
]  # fmt: skip
