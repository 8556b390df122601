"""Bugs in the server, and in what its two processes say to each other."""

from tests.mutation.planting import Mutant, plant

OPENAPI_TESTS = ("tests/serving/test_openapi.py",)
COMPAT_TESTS = ("tests/compat/test_vllm.py",)
PAUSES_TESTS = ("tests/serving/test_pauses.py",)
IN_FLIGHT_TESTS = ("tests/serving/test_in_flight.py",)
APP_TESTS = ("tests/serving/test_app.py",)
RESPONSES_TESTS = ("tests/serving/test_responses_api.py",)
MESSAGES_TESTS = ("tests/serving/test_anthropic.py",)
PAGE_TESTS = ("tests/serving/test_metrics_page.py",)
UNSOUND_TESTS = ("tests/serving/test_unsound_requests.py",)
OFFERS_TESTS = ("tests/serving/test_offers.py",)
LLM_TESTS = ("tests/serving/test_async_llm.py",)

FIGURES_TESTS = ("tests/bench/test_figures.py",)
CLIENT_TESTS = ("tests/bench/test_client.py",)
STATE_TESTS = ("tests/serving/test_state.py",)

MUTANTS: list[Mutant] = [
    *plant("jax_engine/serving/engine_server.py", PAUSES_TESTS,
        ("self.loop.paused = bool(self._paused_by)", "self.loop.paused = False",
         "who gives up a pause ends another's"),
    ),
    *plant("jax_engine/serving/engine_server.py", IN_FLIGHT_TESTS,
        ('logger.error("%d requests', 'logger.debug("%d requests', "a step fails silently"),
    ),
    *plant("jax_engine/serving/open_requests.py", PAUSES_TESTS,
        ("with suppress(EngineDeadError):\n            self._client.send(CancelPause(number))",
         "self._client.send(CancelPause(number))",
         "who gives up a pause of a dead engine is not cancelled"),
    ),
    *plant("jax_engine/serving/api/web_page.py", STATE_TESTS,
        ("if question is None or question.done()", "if True", "each look is a question more"),
    ),
    *plant("jax_engine/serving/api/service.py", STATE_TESTS,
        ("#{next(self._numbers)}", "#", "two answers of one id: one is refused"),
    ),
    *plant("jax_engine/commands/bench/benchmark_request.py", FIGURES_TESTS,
        ("if event.choices:", "if event.choices or event.usage:", "usage is a piece of output"),
        ("*events, self._rest", "*events, _", "events in two parts are lost"),
    ),
    *plant("jax_engine/commands/bench/benchmark_request.py", FIGURES_TESTS,
        ("rng.gamma(burstiness,", "rng.gamma(1.0,", "all arrivals are Poisson"),
    ),
    *plant("jax_engine/commands/bench/client.py", CLIENT_TESTS,
        ("outcome = Outcome(self._clock(), ask", "outcome = Outcome(came, ask", "waiting is TTFT"),
        ("async with self._places:", "if True:", "max_concurrency is ignored"),
    ),
    *plant("jax_engine/serving/api/app.py", OPENAPI_TESTS,
        ('"required": ["message", "type"]', '"required": ["message", "type", "code"]',
         "the document tells a field that Anthropic's errors lack"),
        ("for kind in kinds]", "for kind in kinds[:1]]", "a body of /tokenize is not told"),
    ),
    *plant("jax_engine/compat/vllm.py", COMPAT_TESTS,
        ('["-m", SERVER]', '["-m"]', "vLLM's server is taken for a program's file"),
    ),
    *plant("jax_engine/serving/api/streaming.py", APP_TESTS,
        ("{task, watch}, return_when=asyncio.FIRST_COMPLETED",
         "{task}, return_when=asyncio.FIRST_COMPLETED", "who leaves is not noticed"),
    ),
    *plant("jax_engine/serving/api/request_fields.py", UNSOUND_TESTS,
        ("layer += one\n", "layer += one if type(one) is list else ()\n", "keys are not looked at"),
    ),
    *plant("jax_engine/serving/api/http_protocol.py", OFFERS_TESTS,
        ("more_body:\n            self._start", "more_body:\n            self._end",
         "the rest of a refused body may take for ever"),
    ),
    *plant("jax_engine/serving/stat_loggers.py", APP_TESTS,
        ("except (TimeoutError, EngineDeadError):", "except EngineDeadError:",
         "a busy engine: 500"),
    ),
    *plant("jax_engine/serving/stat_loggers.py", PAGE_TESTS,
        ("families(self._named())", "families(self._metrics)",
         "the label of the model is a path of the host"),
    ),
    *plant("jax_engine/serving/stat_loggers.py", ("tests/serving/test_stats_log.py",),
        ("if grown[_QUERIES]:", "if values[_HITS]:", "no query is a division by zero"),
    ),
    *plant("jax_engine/serving/api/api_errors.py", APP_TESTS,
        ('_HOST_PATH.sub("(a path)", _ENGINE_ID.sub("", str(error)))', "str(error)",
         "errors tell paths of the host"),
    ),
    *plant("jax_engine/serving/api/content_blocks.py", RESPONSES_TESTS,
        ("if piece.index != self._call or", "if self._call is None or",
         "a second call is written into the first"),
    ),
    *plant("jax_engine/serving/api/chat_messages.py", RESPONSES_TESTS,
        ("if id_ not in self._calls:", "if not id_:", "what a tool answered needs no call"),
    ),
    *plant("jax_engine/serving/api/anthropic/messages_request.py", MESSAGES_TESTS,
        ('return bool(last["role"] == "assistant")', "return False",
         "a beginning is not gone on with"),
    ),
    *plant("jax_engine/serving/api/anthropic/messages_stream.py", MESSAGES_TESTS,
        ('if reason == "stop" and isinstance(found, str):',
         'if reason == "stop" and found is not None:', "a stop token is a stop sequence"),
    ),
    *plant("jax_engine/serving/messages.py", LLM_TESTS,
        ("if one.name in _LEFT_OUT or value == getattr(default, one.name):",
         "if one.name in _LEFT_OUT or value is None or value == getattr(default, one.name):",
         "max_tokens=None is not sent, and becomes 16"),
    ),
]  # fmt: skip
