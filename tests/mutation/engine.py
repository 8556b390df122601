"""Bugs in the engine around the core: what requests are told, counted and timed."""

from tests.mutation.planting import Mutant, plant

SHELL = ("tests/properties/test_engine_shell.py",)
RECORDER = ("tests/engine/test_request_metrics.py",)
STREAMING = (
    "tests/engine/test_streaming.py",
    "tests/engine/test_results.py",
    "tests/engine/test_assembler.py",
)
DEADLINES = ("tests/engine/test_deadlines.py", *SHELL)
FOLDER = "jax_engine/engine"

REQUESTS: list[Mutant] = [
    *plant(f"{FOLDER}/requests/request.py", SHELL,
        ("cache_salt=parsed.cache_salt,", "cache_salt=None,", "a salt never reaches the cache"),
    ),
    *plant(f"{FOLDER}/requests/request.py", SHELL,
        ("= request_id, priority", "= request_id, 0", "priorities are forgotten"),
    ),
    *plant(f"{FOLDER}/running_requests.py", SHELL,
        ("self._seed, order)", "self._seed, 0)", "one seed for all unseeded requests"),
        ("arrival + request.timeout", "now + request.timeout", "a timeout begins at the call"),
        ("finished_time = now", "finished_time = request.metrics.first_token_time",
         "the end is when the first token came"),
        ("self._scheduler.abort(request_id, stop_reason)", "self._scheduler.abort(request_id)",
         "who timed out is not told so"),
    ),
    *plant(f"{FOLDER}/requests/prompts.py", SHELL,
        ('salt = prompt.get("cache_salt")', "salt = None", "a salt is not read"),
    ),
    *plant(f"{FOLDER}/running_requests.py", DEADLINES,
        ("self._numbers.get(entry[2]) == entry[1]", "entry[2] in self._numbers",
         "the deadline of an id's earlier request counts"),
    ),
]  # fmt: skip

OUTPUTS: list[Mutant] = [
    *plant(f"{FOLDER}/results.py", SHELL,
        ("result.logprobs, logits, row, token", "result.logprobs, logits, 0, token",
         "log-probabilities are those of the step's first row"),
        ("return not seq.output_len, -self._sample", "return not seq.output_len, self._sample",
         "best_of returns the worst"),
        ("cumulative, logprobs = seq.cumulative_logprob, _of_beam(seq)",
         "logprobs = _of_beam(seq)", "a beam without its log-probability"),
    ),
    *plant(f"{FOLDER}/assembler.py", STREAMING,
        ("RequestMetrics(*times, *core_output.drafts)", "RequestMetrics(self.metrics.arrival_time)",
         "times are not told"),
    ),
    *plant(f"{FOLDER}/results.py", SHELL,
        ("list(range(1, len(tops) + 1))", "list(range(len(tops)))", "ranks begin at 0"),
        ("end = None if num_top == -1 else num_top",
         "end = None if num_top == -1 else num_top + 1",
         "one of the most probable tokens too many"),
    ),
    *plant(f"{FOLDER}/pipeline.py", ("tests/engine/test_step_outputs.py", *SHELL),
        ("        row += item.num_tokens",
         "        row += item.num_tokens if item.seq.finish_reason is None else 0",
         "prompt log-probabilities shift after an abort"),
        ("        row += item.num_draws",
         "        row += item.num_draws if item.seq.finish_reason is None else 0",
         "tokens shift after an abort"),
    ),
]  # fmt: skip

STEPS: list[Mutant] = [
    *plant(f"{FOLDER}/llm_engine.py", DEADLINES,
        ('self._running.end(request_id, "timeout"', 'self._running.end(request_id, "late"',
         "words"),
    ),
    *plant(f"{FOLDER}/pipeline.py", ("tests/engine/test_pipeline.py", *SHELL),
        ("        step = self._launch(ahead, now)\n",
         "        try:\n            step = self._launch(ahead, now)\n"
         "        except RuntimeError:\n            return None\n",
         "blocks that could not be moved are taken for moved"),
    ),
]  # fmt: skip

COUNTS: list[Mutant] = [
    *plant(f"{FOLDER}/stats.py", SHELL,
        ("self._num_tokens += plan.num_batched_tokens", "self._num_tokens += len(plan.scheduled)",
         "tokens are counted as sequences"),
        ("self._sum_used += used", "self._sum_used += logical", "nothing is ever saved"),
        ('preemptions["recompute"]', 'preemptions["swap"]', "swaps are counted as recomputed"),
        ("len(scheduler.waiting)", "len(scheduler.waiting) + len(scheduler.swapped)",
         "who is swapped out is counted as waiting"),
    ),
    *plant(f"{FOLDER}/stats.py", SHELL,
        ("request.results.num_generated", "len(group.seqs)", "tokens are counted as samples"),
        ("_between(times.arrival_time, times.finished_time)",
         "_between(times.queued_time, times.finished_time)",
         "the latency without the way to the engine"),
        ('"prefix_cache_hits"] += found - loaded',
         '"prefix_cache_hits"] += group.prompt_len', "each query of the cache is a hit"),
        ("between.add(now - before, count)", "between.add(now - before)", "one of each step's"),
        ("+= taken.num_first + len(taken.before)", "+= num_tokens", "prompts are generated"),
        ("group.seqs[0].finish_reason", "group.seqs[-1].finish_reason", "the last one's reason"),
        ('_prompt_tokens", group.prompt_len)', '_prompt_tokens", 1)', "prompts of one token each"),
    ),
    *plant(f"{FOLDER}/stats.py", RECORDER,
        ('yield "request_prefill_time_seconds", _between(planned, first)',
         'yield "request_prefill_time_seconds", _between(times.queued_time, first)',
         "who waits is computed"),
    ),
    *plant(f"{FOLDER}/pipeline.py", SHELL,
        ("num_first += item.num_samples", "num_first += 1", "a fork has no first token"),
    ),
    *plant("jax_engine/engine/stats.py", SHELL,
        ("self.sum += value * times", "self.sum = value", "a histogram's sum is its last value"),
        ("self.counts[bisect_left(self.limits, value)]",
         "self.counts[bisect_left(self.limits, value) - 1]",
         "an observation in the bucket below its own"),
    ),
]  # fmt: skip

CORE: list[Mutant] = [
    *plant("jax_engine/core/scheduler_state.py", ("tests/core/test_step_ahead.py", *SHELL),
        ("computed, group.cache_salt)", "computed, None)",
         "no salt for a block that is cached at the end of its sequence"),
    ),
    *plant("jax_engine/core/unified.py", SHELL,
        ("group.cache_salt, seq.chain, own)", "None, seq.chain, own)", "hits of any salt"),
    ),
    *plant("jax_engine/core/scheduler_state.py", SHELL,
        ("cache_salt=group.cache_salt,", "cache_salt=None,", "blocks are cached without a salt"),
    ),
]  # fmt: skip

MUTANTS: list[Mutant] = [*REQUESTS, *OUTPUTS, *STEPS, *COUNTS, *CORE]
