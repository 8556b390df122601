"""Bugs in the server, and in what its two processes say to each other."""

from tests.mutation.planting import Mutant, plant

APP_TESTS = ("tests/serving/test_app.py",)
LLM_TESTS = ("tests/serving/test_async_llm.py",)

FIGURES_TESTS = ("tests/bench/test_figures.py",)
CLIENT_TESTS = ("tests/bench/test_client.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/commands/bench/outcomes.py",
        FIGURES_TESTS,
        ("rest = self.num_output - 1", "rest = self.num_output", "TPOT counts the first token"),
        ("if event.choices:", "if event.choices or event.usage:", "usage is a piece of output"),
        ("*events, self._rest", "*events, _", "events in two parts are lost"),
        ("is None and not self._done", "is None and False", "half of an answer is an answer"),
    ),
    *plant(
        "jax_engine/commands/bench/figures.py",
        FIGURES_TESTS,
        ("if one.num_output > 1]", "]", "answers of one token have a TPOT of 0"),
        ("for one in outcomes if one.error is None", "for one in outcomes", "failures count"),
        ("return all(1e3", "return any(1e3", "one kept limit is goodput"),
        ("one.latency / one.num_output", "one.latency", "latency is not normalized"),
    ),
    *plant(
        "jax_engine/commands/bench/arrivals.py",
        FIGURES_TESTS,
        ("rng.gamma(burstiness,", "rng.gamma(1.0,", "all arrivals are Poisson"),
        ("count / rate / times[-1]", "1 / rate", "a run's length depends on the draw"),
    ),
    *plant(
        "jax_engine/commands/bench/client.py",
        CLIENT_TESTS,
        ("outcome = Outcome(self._clock(), ask", "outcome = Outcome(came, ask", "waiting is TTFT"),
        ("async with self._places:", "if True:", "max_concurrency is ignored"),
    ),
    *plant(
        "jax_engine/serving/openai/running.py",
        APP_TESTS,
        (
            "{task, watch}, return_when=asyncio.FIRST_COMPLETED",
            "{task}, return_when=asyncio.FIRST_COMPLETED",
            "who leaves is not noticed",
        ),
    ),
    *plant(
        "jax_engine/serving/openai/guards.py",
        APP_TESTS,
        ("return any(same) and", "return any(same) or", "the word Bearer is a key"),
        ("taken += len", "taken = len", "a long body in chunks is taken"),
    ),
    *plant(
        "jax_engine/serving/openai/sampling_fields.py",
        APP_TESTS,
        ("**(defaults | chosen)", "**(chosen | defaults)", "the model's defaults replace fields"),
        ("if len(ways) > 1:", "if len(ways) > 2:", "one of two grammars is ignored"),
    ),
    *plant(
        "jax_engine/serving/openai/completions.py",
        APP_TESTS,
        ("i * self.request.n + k", "i + k", "choices of two prompts share an index"),
        ("wanted or 1,", "wanted or 16,", "an echo alone computes tokens"),
        ("echo = request.echo and first", "echo = request.echo", "a stream repeats its prompt"),
    ),
    *plant(
        "jax_engine/serving/openai/metrics.py",
        APP_TESTS,
        (
            "except (TimeoutError, EngineDeadError):",
            "except EngineDeadError:",
            "a busy engine: 500",
        ),
    ),
    *plant(
        "jax_engine/serving/openai/errors.py",
        APP_TESTS,
        ('_HOST_PATH.sub("(a path)", str(error))', "str(error)", "errors tell paths of the host"),
    ),
    *plant(
        "jax_engine/serving/wire_params.py",
        LLM_TESTS,
        (
            "if one.name in _LEFT_OUT or value == one.default:",
            "if one.name in _LEFT_OUT or value is None or value == one.default:",
            "max_tokens=None is not sent, and becomes 16",
        ),
    ),
    *plant(
        "jax_engine/serving/open_requests.py",
        LLM_TESTS,
        ("self._client.send(Abort([name]))", "pass", "who stops reading leaves a request behind"),
    ),
]
