"""Bugs in the server, and in what its two processes say to each other."""

from tests.mutation.planting import Mutant, plant

OPENAPI_TESTS = ("tests/serving/test_openapi.py",)
COMPAT_TESTS = ("tests/compat/test_vllm.py",)
PAUSES_TESTS = ("tests/serving/test_pauses.py",)
IN_FLIGHT_TESTS = ("tests/serving/test_in_flight.py",)
HUGE_PAGES_TESTS = ("tests/models/test_huge_pages.py",)
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
MAP_TESTS = ("tests/core/test_block_map.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/engine/assembler.py",
        ("tests/serving/test_stream_interval.py",),
        ("full = self.num_read == 0 or", "full =", "the first token waits for an interval"),
        ("- self.num_read >= interval", "- self.num_read > interval", "one token longer"),
        (
            "return self.has_output and (full or self.finish_reason is not None)",
            "return self.has_output and full",
            "the end of one of two samples waits",
        ),
    ),
    *plant(
        "jax_engine/serving/engine_server.py",
        PAUSES_TESTS,
        (
            "self.loop.paused = bool(self._paused_by)",
            "self.loop.paused = False",
            "who gives up a pause ends another's",
        ),
        ("self._paused_by.clear()", "pass", "a pause that was ended keeps one that is given up"),
        ("elif self._waiting:", "elif False:", "who comes late delays a pause"),
        ('and one.mode != "keep"', "", "a pause that keeps clears the cache"),
    ),
    *plant(
        "jax_engine/serving/engine_server.py",
        IN_FLIGHT_TESTS,
        ('logger.error("%d requests', 'logger.debug("%d requests', "a step fails silently"),
    ),
    *plant(
        "jax_engine/serving/open_requests.py",
        PAUSES_TESTS,
        (
            "with suppress(EngineDeadError):\n            self._client.send(CancelPause(number))",
            "self._client.send(CancelPause(number))",
            "who gives up a pause of a dead engine is not cancelled",
        ),
    ),
    *plant(
        "jax_engine/serving/engine_client.py",
        PAUSES_TESTS,
        (
            "        if self._closing:\n            return\n        loop",
            "        loop",
            "a closed socket is read",
        ),
    ),
    *plant(
        "jax_engine/models/huge_pages.py",
        HUGE_PAGES_TESTS,
        ("_threads.add(thread)", "pass", "the end of a program cuts off a thread"),
    ),
    *plant(
        "jax_engine/serving/api/web_page.py",
        STATE_TESTS,
        ("if question is None or question.done()", "if True", "each look is a question more"),
        ("if llm.errored:", "if False:", "an engine that has ended is taken for alive"),
    ),
    *plant(
        "jax_engine/serving/api/service.py",
        STATE_TESTS,
        ("#{next(self._numbers)}", "#", "two answers of one id: one is refused"),
    ),
    *plant(
        "jax_engine/engine/engine_state.py",
        MAP_TESTS,
        ("kept = found & ~used", "kept = found", "cached blocks in use are shown as free"),
        ("shared = references > 1", "shared = references > 0", "every block is shared"),
        ("computed - place * block_size", "computed", "all blocks are shown full"),
        ("span = int(taken[-1]) + 1", "span = int(taken[-1])", "the last block is not shown"),
    ),
    *plant(
        "jax_engine/commands/bench/benchmark_request.py",
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
        "jax_engine/commands/bench/benchmark_request.py",
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
        "jax_engine/serving/api/app.py",
        OPENAPI_TESTS,
        (
            '"required": ["message", "type"]',
            '"required": ["message", "type", "code"]',
            "the document tells a field that Anthropic's errors lack",
        ),
        ("for kind in kinds]", "for kind in kinds[:1]]", "a body of /tokenize is not told"),
    ),
    *plant(
        "jax_engine/compat/vllm.py",
        COMPAT_TESTS,
        ('["-m", SERVER]', '["-m"]', "vLLM's server is taken for a program's file"),
    ),
    *plant(
        "jax_engine/serving/api/streaming.py",
        APP_TESTS,
        (
            "{task, watch}, return_when=asyncio.FIRST_COMPLETED",
            "{task}, return_when=asyncio.FIRST_COMPLETED",
            "who leaves is not noticed",
        ),
    ),
    *plant(
        "jax_engine/serving/api/middleware.py",
        APP_TESTS,
        (
            'scheme.lower() == "bearer" and self._is_key',
            'scheme.lower() == "bearer" or self._is_key',
            "the word Bearer is a key",
        ),
        ("taken += len", "taken = len", "a long body in chunks is taken"),
    ),
    *plant(
        "jax_engine/serving/api/middleware.py",
        ("tests/serving/test_unsound_requests.py",),
        (
            'complete = not message.get("more_body", False)',
            "complete = False",
            "the time of a body is that of its answer too",
        ),
    ),
    *plant(
        "jax_engine/serving/api/request_fields.py",
        UNSOUND_TESTS,
        ("range(MAX_DEPTH + 1)", "range(MAX_DEPTH)", "the deepest allowed level is refused"),
        ("layer += one\n", "layer += one if type(one) is list else ()\n", "keys are not looked at"),
    ),
    *plant(
        "jax_engine/serving/api/http_protocol.py",
        UNSOUND_TESTS,
        (
            "if self._in_head and self._come > MAX_HEAD",
            "if False",
            "a head in pieces is endless",
        ),
        ("if self._read > MAX_HEAD", "if False", "a head in one piece has any length"),
        (
            "self._timer = self.loop.call_later(HEAD_S, self.transport.close)",
            "pass",
            "a head may take for ever",
        ),
    ),
    *plant(
        "jax_engine/serving/api/http_protocol.py",
        OFFERS_TESTS,
        (" + data[upgrade.args[0] :]", "", "a body beside an offer is lost"),
        (
            "if self._in_head:\n            super",
            "if True:\n            super",
            "trailers are headers",
        ),
        ("if self._owes_answer():", "if False:", "a refusal amid another answer"),
        (
            "more_body:\n            self._start",
            "more_body:\n            self._end",
            "the rest of a refused body may take for ever",
        ),
    ),
    *plant(
        "jax_engine/serving/api/middleware.py",
        OFFERS_TESTS,
        ("and not wanted", "and False", "the next request is taken for an announced body"),
    ),
    *plant(
        "jax_engine/serving/api/service.py",
        UNSOUND_TESTS,
        ("or not given.isprintable()", "", "an id breaks a line of the log"),
        ("len(given) > MAX_ID or ", "", "an id is as long as a client likes"),
    ),
    *plant(
        "jax_engine/processes/child_process.py",
        ("tests/serving/test_awake.py",),
        (
            "min(now - self._last, self._at_most)",
            "now - self._last",
            "Ctrl-Z is the engine's death",
        ),
    ),
    *plant(
        "jax_engine/serving/api/sampling_fields.py",
        APP_TESTS,
        ("**(defaults | chosen)", "**(chosen | defaults)", "the model's defaults replace fields"),
        ("if len(ways) > 1:", "if len(ways) > 2:", "one of two grammars is ignored"),
    ),
    *plant(
        "jax_engine/serving/api/openai/completions.py",
        APP_TESTS,
        ("i * self.request.n + k", "i + k", "choices of two prompts share an index"),
        ("(wanted) or 1,", "(wanted) or 16,", "an echo alone computes tokens"),
        ("if request.echo and first else", "if request.echo else", "a stream repeats its prompt"),
    ),
    *plant(
        "jax_engine/serving/stat_loggers.py",
        APP_TESTS,
        (
            "except (TimeoutError, EngineDeadError):",
            "except EngineDeadError:",
            "a busy engine: 500",
        ),
    ),
    *plant(
        "jax_engine/serving/stat_loggers.py",
        PAGE_TESTS,
        (
            "families(self._named())",
            "families(self._metrics)",
            "the label of the model is a path of the host",
        ),
    ),
    *plant(
        "jax_engine/serving/stat_loggers.py",
        ("tests/serving/test_stats_log.py",),
        ("if not (busy or was_busy):", "if not busy:", "the log ends amid a burst"),
        ("self._time, self._before = now, values", "self._before = values", "rates fall for ever"),
        ("if grown[_QUERIES]:", "if values[_HITS]:", "no query is a division by zero"),
    ),
    *plant(
        "jax_engine/serving/request_log.py",
        ("tests/serving/test_request_log.py",),
        ("if not self._max_prompt:", "if self._max_prompt:", "prompts are logged unasked"),
        (
            "name = request_id if origin is None else origin.request_id",
            "name = request_id",
            "a line without the client's id",
        ),
    ),
    *plant(
        "jax_engine/serving/api/api_errors.py",
        APP_TESTS,
        (
            '_HOST_PATH.sub("(a path)", _ENGINE_ID.sub("", str(error)))',
            "str(error)",
            "errors tell paths of the host",
        ),
    ),
    *plant(
        "jax_engine/serving/api/content_blocks.py",
        RESPONSES_TESTS,
        (
            "if piece.index != self._call or",
            "if self._call is None or",
            "a second call is written into the first",
        ),
        (
            "if turn.reasoning or turn.calls:",
            "if turn.calls:",
            "log-probabilities of reasoning are those of the text",
        ),
    ),
    *plant(
        "jax_engine/serving/api/chat_messages.py",
        RESPONSES_TESTS,
        ("if id_ not in self._calls:", "if not id_:", "what a tool answered needs no call"),
    ),
    *plant(
        "jax_engine/serving/api/openai/responses_stream.py",
        RESPONSES_TESTS,
        (
            'if reason != "length":',
            "if True:",
            "an item that is cut off is complete",
        ),
        ("self._number - 1}", "self._number}", "numbers of events begin with 1"),
    ),
    *plant(
        "jax_engine/serving/api/openai/responses_request.py",
        RESPONSES_TESTS,
        ("if self.background:", "if False:", "background is ignored"),
    ),
    *plant(
        "jax_engine/serving/api/anthropic/messages_request.py",
        MESSAGES_TESTS,
        (
            'f"Error: {text}" if block.is_error else text',
            "text",
            "that a tool failed is not said",
        ),
        (
            'return bool(last["role"] == "assistant")',
            "return False",
            "a beginning is not gone on with",
        ),
    ),
    *plant(
        "jax_engine/serving/api/anthropic/messages_stream.py",
        MESSAGES_TESTS,
        ("used.prompt_tokens - cached", "used.prompt_tokens", "cached tokens are counted twice"),
        (
            'if reason == "stop" and isinstance(found, str):',
            'if reason == "stop" and found is not None:',
            "a stop token is a stop sequence",
        ),
    ),
    *plant(
        "jax_engine/serving/messages.py",
        LLM_TESTS,
        (
            "if one.name in _LEFT_OUT or value == getattr(default, one.name):",
            "if one.name in _LEFT_OUT or value is None or value == getattr(default, one.name):",
            "max_tokens=None is not sent, and becomes 16",
        ),
    ),
    *plant(
        "jax_engine/serving/open_requests.py",
        LLM_TESTS,
        ("self._client.send(Abort([name]))", "pass", "who stops reading leaves a request behind"),
    ),
]
