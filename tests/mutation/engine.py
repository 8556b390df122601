"""Bugs in the engine around the core: what requests are told, counted and timed."""

from tests.mutation.planting import Mutant, plant

SHELL = ("tests/properties/test_engine_shell.py",)
RECORDER = ("tests/engine/test_request_metrics.py",)
FAILED = (*SHELL, "tests/engine/test_failed_steps.py")
STREAMING = (
    "tests/engine/test_streaming.py",
    "tests/engine/test_results.py",
    "tests/engine/test_assembler.py",
)
DEADLINES = ("tests/engine/test_deadlines.py", *SHELL)
COSTS = ("tests/engine/test_preemption_costs.py",)
FOLDER = "jax_engine/engine"

REQUESTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/request.py",
        SHELL,
        ("cache_salt=parsed.cache_salt,", "cache_salt=None,", "a salt never reaches the cache"),
    ),
    *plant(
        f"{FOLDER}/request.py",
        SHELL,
        ("= request_id, priority", "= request_id, 0", "priorities are forgotten"),
        (
            "now if self.arrival_time is None else self.arrival_time",
            "now",
            "the time of arrival is that of the call",
        ),
    ),
    *plant(
        f"{FOLDER}/running_requests.py",
        SHELL,
        ("self._seed, order)", "self._seed, 0)", "one seed for all unseeded requests"),
        ("arrival + request.timeout", "now + request.timeout", "a timeout begins at the call"),
        ("self.deadlines.remove(request_id)", "pass", "a deadline outlives its request"),
        ("self._pipeline.close(request.group.number)", "pass", "the worker keeps who has ended"),
        ("self.streaming.pop(request_id, None)", "pass", "who was aborted has outputs"),
        (
            "finished_time = now",
            "finished_time = request.metrics.first_token_time",
            "the end is when the first token came",
        ),
        ("self.recorder.take(request)", "pass", "ends are not counted"),
        (
            "self._scheduler.abort(request_id, stop_reason)",
            "self._scheduler.abort(request_id)",
            "who timed out is not told so",
        ),
        ("self._scheduler.clear()", "pass", "groups stay in the scheduler after a failed step"),
    ),
    *plant(
        f"{FOLDER}/prompts.py",
        SHELL,
        ('salt = prompt.get("cache_salt")', "salt = None", "a salt is not read"),
    ),
    *plant(
        f"{FOLDER}/running_requests.py",
        DEADLINES,
        (
            "self._numbers.get(entry[2]) == entry[1]",
            "entry[2] in self._numbers",
            "the deadline of an id's earlier request counts",
        ),
        (
            "self._num_added += 1\n        self._numbers[",
            "self._numbers[",
            "requests of one id share a number",
        ),
    ),
]

OUTPUTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/results.py",
        SHELL,
        (
            "cumulative_logprob += float(",
            "cumulative_logprob = float(",
            "the last log-probability in place of the sum",
        ),
        (
            "result.logprobs, logits, row, token",
            "result.logprobs, logits, 0, token",
            "log-probabilities are those of the step's first row",
        ),
        (
            "before = row - item.start - 1",
            "before = row - item.start",
            "prompt log-probabilities, one row too far",
        ),
        (
            "item.start + item.num_tokens + 1,",
            "item.start + item.num_tokens,",
            "a chunk's last token says nothing of the next one",
        ),
        (
            "return not seq.output_len, -self._sample",
            "return not seq.output_len, self._sample",
            "best_of returns the worst",
        ),
        ("self._group.num_cached_tokens or 0", "0", "cached tokens are not told"),
        (
            "cumulative if self._params.needs_logprobs else None",
            "cumulative",
            "a sum of log-probabilities that nobody took",
        ),
        (
            "cumulative, logprobs = seq.cumulative_logprob, _of_beam(seq)",
            "logprobs = _of_beam(seq)",
            "a beam without its log-probability",
        ),
    ),
    *plant(
        f"{FOLDER}/results.py",
        STREAMING,
        (
            "sample.num_given += len(tokens)",
            "sample.num_given = len(tokens)",
            "third news begin where the second did",
        ),
        (
            "return seq.output_len > sample.num_given or ended",
            "return seq.output_len > sample.num_given",
            "an end without a token is no news",
        ),
    ),
    *plant(
        f"{FOLDER}/assembler.py",
        STREAMING,
        (
            "self.num_tokens > self.num_read or (ended and not self.end_read)",
            "self.num_tokens > self.num_read",
            "an end without a token is not told in deltas",
        ),
        (
            "            self._prompt_logprobs = None\n        return",
            "            pass\n        return",
            "what a prompt was given is given again with each delta",
        ),
        (
            "RequestMetrics(*times, *core_output.drafts)",
            "RequestMetrics(self.metrics.arrival_time)",
            "times are not told",
        ),
    ),
    *plant(
        f"{FOLDER}/results.py",
        SHELL,
        ("list(range(1, len(tops) + 1))", "list(range(len(tops)))", "ranks begin at 0"),
        (
            "end = None if num_top == -1 else num_top",
            "end = None if num_top == -1 else num_top + 1",
            "one of the most probable tokens too many",
        ),
    ),
    *plant(
        f"{FOLDER}/pipeline.py",
        ("tests/engine/test_step_outputs.py", *SHELL),
        (
            "        row += item.num_tokens",
            "        row += item.num_tokens if item.seq.finish_reason is None else 0",
            "prompt log-probabilities shift after an abort",
        ),
        (
            "        row += item.num_draws",
            "        row += item.num_draws if item.seq.finish_reason is None else 0",
            "tokens shift after an abort",
        ),
        (
            "request.group.seqs[item.seq.index + i]",
            "request.group.seqs[i]",
            "log-probabilities of later parts go to the first",
        ),
        (".take_token(seq, row + i,", ".take_token(seq, row,", "samples share a row"),
    ),
]

STEPS: list[Mutant] = [
    *plant(
        f"{FOLDER}/llm_engine.py",
        DEADLINES,
        ("self._pipeline.clear()", "pass", "a step in flight is kept after a failure"),
        ("del self._running.ended[kept:]", "pass", "outputs of a step that failed come later"),
        (
            'self._running.end(request_id, "timeout"',
            'self._running.end(request_id, "late"',
            "words",
        ),
        ("self._end_overdue()\n            if", "if", "deadlines are not looked at"),
        ("self._stats.record(plan)", "pass", "steps are not counted"),
    ),
    *plant(
        f"{FOLDER}/pipeline.py",
        ("tests/engine/test_pipeline.py", *SHELL),
        (
            "        self._flight.clear()\n",
            "",
            "the step ahead is kept after a failed collect",
        ),
        (
            "        step = self._launch(ahead, now)\n",
            "        try:\n            step = self._launch(ahead, now)\n"
            "        except RuntimeError:\n            return None\n",
            "blocks that could not be moved are taken for moved",
        ),
        ("        self._runner.recover()\n", "", "a cache that is gone is used again"),
        (
            "_prompt_tokens(current) <= self._sizes.look_ahead_tokens",
            "True",
            "who comes while a long prompt is computed waits for two steps",
        ),
        ("self._opened[setup.number] = setup", "pass", "the worker is not told of requests"),
        (
            "        self._opened, self.closed = {}, []\n        ticket",
            "        ticket",
            "the worker is told again and again",
        ),
        (
            "self._opened, self.closed = {}, []\n        ticket",
            "self._opened = {}\n        ticket",
            "the worker is told to forget again and again",
        ),
        (
            "if self._opened.pop(number, None) is None:",
            "if True:",
            "the worker is told to forget whom it never knew",
        ),
    ),
    *plant(
        "jax_engine/core/scheduler.py",
        ("tests/core/test_undone.py",),
        (
            "self.drop_steps()\n        self._state.clear()",
            "self._state.clear()",
            "the scheduler waits for a step that failed",
        ),
    ),
    *plant(
        "jax_engine/core/scheduler_state.py",
        FAILED,
        (
            "self.waiting, self.running, self.swapped = [], [], []",
            "self.waiting, self.running = [], []",
            "who was swapped out when a step failed stays so",
        ),
    ),
    *plant(
        "jax_engine/core/block_manager.py",
        FAILED,
        ("self.cpu.clear()", "pass", "swap space leaks when a step fails"),
    ),
]

COUNTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/stats.py",
        SHELL,
        (
            "self._num_tokens += plan.num_batched_tokens",
            "self._num_tokens += len(plan.scheduled)",
            "tokens are counted as sequences",
        ),
        ("= max(self._peak_used, used)", "= used", "the peak is the last"),
        ("self._sum_used += used", "self._sum_used += logical", "nothing is ever saved"),
        ("1.0 - used / logical if", "used / logical if", "the saving is what is left"),
        ('preemptions["recompute"]', 'preemptions["swap"]', "swaps are counted as recomputed"),
        (
            "len(scheduler.waiting)",
            "len(scheduler.waiting) + len(scheduler.swapped)",
            "who is swapped out is counted as waiting",
        ),
        (
            "= max(self._peak_shared, blocks.num_shared)",
            "= blocks.num_shared",
            "the peak of shared blocks is the last number",
        ),
    ),
    *plant(
        f"{FOLDER}/stats.py",
        SHELL,
        (
            "request.results.num_generated",
            "len(group.seqs)",
            "tokens are counted as samples",
        ),
        (
            "waited = now - request.metrics.arrival_time",
            "waited = now",
            "the wait for the first token since the beginning of time",
        ),
        (
            "_between(times.arrival_time, times.finished_time)",
            "_between(times.queued_time, times.finished_time)",
            "the latency without the way to the engine",
        ),
        (
            '"prefix_cache_hits"] += group.num_cached_tokens or 0',
            '"prefix_cache_hits"] += group.prompt_len',
            "each query of the cache is a hit",
        ),
        ("between.add(now - before, count)", "between.add(now - before)", "one of each step's"),
        ("+= taken.num_first + len(taken.before)", "+= num_tokens", "prompts are generated"),
        ("group.seqs[0].finish_reason", "group.seqs[-1].finish_reason", "the last one's reason"),
        ("if group.reads_cache:", "if True:", "queries that nobody made"),
        (
            "stats.num_waiting + stats.num_swapped",
            "stats.num_waiting",
            "who is swapped out waits for nothing",
        ),
        (
            '_prompt_tokens", group.prompt_len)',
            '_prompt_tokens", 1)',
            "prompts of one token each",
        ),
    ),
    *plant(
        f"{FOLDER}/stats.py",
        RECORDER,
        ("decode / (longest - 1)", "decode / longest", "a token has no one before it"),
        (
            'yield "request_prefill_time_seconds", _between(planned, first)',
            'yield "request_prefill_time_seconds", _between(times.queued_time, first)',
            "who waits is computed",
        ),
        ("if not request.results.counts_samples:", "if False:", "beams generate nothing"),
        ('self._reasons["error"] += count', "pass", "failed steps end nobody"),
    ),
    *plant(
        f"{FOLDER}/pipeline.py",
        SHELL,
        (
            "            seq.token_time = now\n        results",
            "        results",
            "each token follows on the first",
        ),
        ("num_first += item.num_samples", "num_first += 1", "a fork has no first token"),
    ),
    *plant(
        f"{FOLDER}/running_requests.py",
        SHELL,
        (
            "                del self._unplanned[request.request_id]\n",
            "",
            "a request is planned for the first time in each step",
        ),
    ),
    *plant(
        "jax_engine/engine/stats.py",
        SHELL,
        ("self.sum += value * times", "self.sum = value", "a histogram's sum is its last value"),
        (
            "self.counts[bisect_left(self.limits, value)]",
            "self.counts[bisect_left(self.limits, value) - 1]",
            "an observation in the bucket below its own",
        ),
    ),
    *plant(
        "jax_engine/worker/preemption_costs.py",
        COSTS,
        ("seconds / (2 * count)", "seconds / count", "a move costs as much as two"),
        ("min(_timed(out_and_in, ", "max(_timed(out_and_in, ", "the slowest round of moving"),
        ("min(_timed(partial(", "max(_timed(partial(", "the slowest round of computing"),
        (
            "best = min(best, seconds / size)",
            "best = seconds / size",
            "the last size in place of the best",
        ),
    ),
]

CORE: list[Mutant] = [
    *plant(
        "jax_engine/core/scheduler_state.py",
        ("tests/core/test_step_ahead.py", *SHELL),
        (
            "computed, group.cache_salt)",
            "computed, None)",
            "no salt for a block that is cached at the end of its sequence",
        ),
    ),
    *plant(
        "jax_engine/core/unified.py",
        SHELL,
        (
            "if group.num_cached_tokens is None:",
            "if True:",
            "cached tokens are overwritten on readmission",
        ),
        ("group.cache_salt, seq.chain, own)", "None, seq.chain, own)", "hits of any salt"),
    ),
    *plant(
        "jax_engine/core/unified.py",
        ("tests/properties/test_equal_bits.py",),
        (
            "own = seq.prompt_len if seq.is_recomputed else None",
            "own = None",
            "who was preempted takes blocks that it would compute to other bits",
        ),
    ),
    *plant(
        "jax_engine/core/scheduler_state.py",
        SHELL,
        ("cache_salt=group.cache_salt,", "cache_salt=None,", "blocks are cached without a salt"),
    ),
]

MUTANTS: list[Mutant] = [*REQUESTS, *OUTPUTS, *STEPS, *COUNTS, *CORE]
