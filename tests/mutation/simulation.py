"""Bugs that show when time passes, things fail and clients vanish: the simulation must see them."""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/simulation/test_simulation.py",)
ENGINE, CORE, WORKER = "jax_engine/engine", "jax_engine/core", "jax_engine/worker"

DEADLINES: list[Mutant] = plant(
    f"{ENGINE}/deadlines.py",
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
        "        self._num_added += 1\n",
        "",
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
        "        self.news.pop(request_id, None)\n",
        "",
        "an ended request has news",
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
        "        outputs = self.ended\n"
        "        outputs += [request.output(finished=False) for request in self.news.values()]",
        "        outputs: list[AnyRequestOutput] = [\n"
        "            request.output(finished=False) for request in self.news.values()\n"
        "        ]\n"
        "        outputs += self.ended",
        "an id that is used again gets the news before the end of the first",
    ),
    (
        "(self.ended if streams else outputs).append",
        "outputs.append",
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
        "            if request.mailbox is not None:\n                request.mailbox.fail(error)",
        "            pass",
        "who waits is not told that a step failed",
    ),
)

PIPELINE: list[Mutant] = plant(
    f"{ENGINE}/pipeline.py",
    TESTS,
    (
        "        step = self._launch(self._scheduler.schedule(), now)\n",
        "        plan = self._scheduler.schedule()\n        if not plan.scheduled:\n"
        "            return None\n        step = self._launch(plan, now)\n",
        "a step that only swaps moves nothing",
    ),
    (
        "        self._restart = True\n        if self._ahead is None:",
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
        "                del self._running.ended[kept:]\n",
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
        f"{ENGINE}/shared_batch.py",
        TESTS,
        (
            "if steps and not outputs:",
            "if steps:",
            "who waits for what has ended runs a step all the same",
        ),
        (
            "            self._num_requests = next_number\n        except",
            "            pass\n        except",
            "ids are given out again before the ends of the first were read",
        ),
        (
            "                    self._stepper.wake()",
            "                    pass",
            "a lost wake-up: who is to step next sleeps on",
        ),
        (
            "self._stepper = next(iter(self._calls), None)",
            "self._stepper = None",
            "nobody steps when a call has returned",
        ),
        (
            "            self._calls.pop(mailbox, None)\n",
            "",
            "a call that has returned is to step next",
        ),
        (
            "        if mailbox.missing:\n            self._engine.abort_all(mailbox)\n",
            "",
            "requests go on when their call has failed",
        ),
    ),
    *plant(
        f"{ENGINE}/mailbox.py",
        TESTS,
        (
            "for request_id in self.request_ids]",
            "for request_id in sorted(self.request_ids)]",
            "outputs come in the order of their names",
        ),
    ),
]  # fmt: skip

OUTPUTS: list[Mutant] = [
    *plant(
        f"{ENGINE}/results.py",
        TESTS,
        (
            "(seq.finish_reason is not None and not ended)",
            "seq.finish_reason is not None",
            "the end of a sample is told in each delta that follows",
        ),
    ),
    *plant(
        f"{ENGINE}/sequence_results.py",
        TESTS,
        (
            "            self._text.finish()  # what was held back",
            "            pass  # what was held back",
            "text that was held back is lost at an abort",
        ),
    ),
]

CONTROLLER: list[Mutant] = [
    *plant(
        f"{CORE}/state.py",
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
        ("            seq.pending = 0\n", "", "a token that has come is waited for"),
    ),
    *plant(
        f"{CORE}/state.py",
        TESTS,
        (
            "        del queue[bisect_left(queue, group.key, key=by_key)]\n",
            "        if queue is self.running:\n"
            "            del queue[bisect_left(queue, group.key, key=by_key)]\n",
            "what ends while the step ahead preempts it stays in its queue",
        ),
    ),
    *plant(
        f"{CORE}/swapping.py",
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
        f"{WORKER}/host_blocks.py",
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
