"""A server that is right, without any weights; wrong ones change one of its methods."""

import http.server
import json
import math
import threading
import time
from contextlib import suppress
from typing import Any

from paged_conformance.server import scripted_model as model
from paged_conformance.server.scripted_model import VOCAB, Output, Step

NAME = "scripted"
LIMIT = 2000  # tokens of a prompt
INTEGERS = {
    "max_tokens": (1, 10**6), "n": (1, 8), "seed": (-(2**63), 2**63 - 1), "min_tokens": (0, 10**6),
    "top_logprobs": (0, 20),
}  # fmt: skip
NUMBERS = {
    "temperature": (0, 100), "top_p": (1e-9, 1), "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}  # fmt: skip
FLAGS = ("stream", "echo", "ignore_eos", "include_stop_str_in_output", "return_token_ids")


class Bad(Exception):
    """The request is refused."""


class Scripted:
    """What the server answers; `Running` makes a server of it.

    Attributes:
        slots: How many requests are computed at once; others wait.
    """

    def __init__(self) -> None:
        self.slots = threading.Semaphore(8)
        self.is_well = True
        self.seen: set[str] = set()  # prompts, as a prefix cache would have them
        self.num_running = 0
        self._lock = threading.Lock()

    # What wrong servers change.
    def context(self, prompt: str) -> str:
        """What the model is given of a prompt."""
        self.seen.add(prompt)
        return prompt

    def complete(self, prompt: str, wanted: dict[str, Any], index: int) -> Output:
        return model.complete(prompt, wanted, index)

    def offsets(self, steps: list[Step], start: int) -> list[int]:
        found = []
        for one in steps:
            found.append(start)
            start += len(one.text)
        return found

    def usage(self, prompts: list[list[str]], outputs: list[Output]) -> dict[str, int]:
        of = sum(map(len, prompts))
        to = sum(len(output.steps) for output in outputs)
        return {"prompt_tokens": of, "completion_tokens": to, "total_tokens": of + to}

    def events(self, bodies: list[dict[str, Any]]) -> list[str]:
        return [*(json.dumps(body) for body in bodies), "[DONE]"]

    def echoed(self, prompt: str, text: str) -> str:
        return prompt + text

    def arguments(self, pieces: list[str]) -> list[str]:
        """The pieces of a call's arguments, as they are streamed."""
        return pieces

    def guided(self, schema: Any) -> str:
        return json.dumps(model.of_schema(schema))

    def embedding(self, text: str, place: int) -> list[float]:
        return model.numbers(text)[:8]

    def check(self, body: dict[str, Any]) -> None:
        """Raises Bad unless each field is in range."""
        for name, (low, high) in INTEGERS.items():
            value = body.get(name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and low <= value <= high):
                raise Bad(f"{name} is {value!r}; it must be a whole number from {low} to {high}")
        for name, (least, most) in NUMBERS.items():
            value = body.get(name)
            real = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (real and math.isfinite(value) and least <= value <= most):
                raise Bad(f"{name} is {value!r}; it must be from {least} to {most}")
        for name in FLAGS:
            if not isinstance(body.get(name), bool | None):
                raise Bad(f"{name} must be true or false")
        ids = body.get("stop_token_ids") or []
        if not (
            isinstance(ids, list) and all(type(one) is int and 0 <= one < VOCAB for one in ids)
        ):
            raise Bad(f"stop_token_ids must be tokens below {VOCAB}")
        stops = body.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        if not (isinstance(stops, list) and all(isinstance(one, str) and one for one in stops)):
            raise Bad("stop must be strings that are not empty")

    def refused(self, error: str) -> tuple[int, dict[str, Any]]:
        return 400, {"error": {"message": error, "type": "invalid_request_error", "code": 400}}

    def left(self) -> None:
        """A client has gone."""
        self.leave()

    def leave(self) -> None:
        with self._lock:
            self.num_running -= 1
        self.slots.release()

    def enter(self) -> None:
        self.slots.acquire()
        with self._lock:
            self.num_running += 1

    # What it is asked.
    def wanted(self, body: dict[str, Any], api: str) -> dict[str, Any]:
        stops = body.get("stop") or []
        tops = body.get("logprobs")
        if api == "chat":
            tops = (body.get("top_logprobs") or 0) if tops else None
        if tops is not None and not (type(tops) is int and 0 <= tops <= 20):
            raise Bad("logprobs must be from 0 to 20")
        default = 16 if api == "completions" else 40
        temperature = body.get("temperature")
        return {
            "max_tokens": min(body.get("max_tokens") or default, 400),
            "temperature": 1.0 if temperature is None else temperature,
            "seed": time.monotonic_ns() if body.get("seed") is None else body["seed"],
            "stop": [stops] if isinstance(stops, str) else stops,
            "include": bool(body.get("include_stop_str_in_output")),
            "stop_token_ids": body.get("stop_token_ids") or [],
            "min_tokens": body.get("min_tokens") or 0,
            "ignore_eos": bool(body.get("ignore_eos")),
            "logprobs": tops is not None,
            "tops": tops or 0,
        }

    def prompts(self, body: dict[str, Any], api: str) -> list[list[str]]:
        """The tokens' texts of each prompt."""
        if api == "chat":
            return [list(_conversation(body.get("messages")))]
        prompt: Any = body.get("prompt")
        is_list = isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)
        many: list[Any] = prompt if is_list else [prompt]
        found = []
        for one in many:
            if isinstance(one, str):
                found.append(list(one))
            elif (
                isinstance(one, list)
                and one
                and all(type(t) is int and 0 <= t < VOCAB for t in one)
            ):
                found.append([model.piece(token) for token in one])
            else:
                raise Bad("prompt must be a text, tokens, or a list of either")
        return found

    def answer(self, body: Any, api: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The whole answer, and the stream's events.

        Raises:
            Bad: The request is refused.
        """
        if not isinstance(body, dict):
            raise Bad("the body must be a JSON object")
        try:
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise Bad("half of a surrogate pair is no text") from error
        self.check(body)
        if body.get("model") != NAME:
            raise Bad("no such model")
        wanted, prompts = self.wanted(body, api), self.prompts(body, api)
        if not prompts or any(not 0 < len(prompt) <= LIMIT for prompt in prompts):
            raise Bad(f"a prompt must have 1 to {LIMIT} tokens")
        count = body.get("n") or 1
        outputs = [
            self._guided(body, wanted)
            or self.complete(self.context("".join(prompt)), wanted, index)
            for prompt in prompts
            for index in range(count)
        ]
        tail = time.monotonic_ns()
        kind = "text_completion" if api == "completions" else "chat.completion"
        head = {"id": f"cmpl-{tail}", "created": int(time.time()), "model": NAME, "object": kind}
        usage = self.usage(prompts, outputs)
        choices, events = [], []
        for index, output in enumerate(outputs):
            echo = prompts[index // count] if body.get("echo") and api == "completions" else None
            choices.append(self._choice(index, output, wanted, body, api, echo))
            events += self._pieces(index, output, wanted, body, api, echo)
        chunk = head | ({"object": "chat.completion.chunk"} if api == "chat" else {})
        stream = [chunk | {"choices": [one]} for one in events]
        if (body.get("stream_options") or {}).get("include_usage"):
            stream.append(chunk | {"choices": [], "usage": usage})
        return head | {"choices": choices, "usage": usage}, stream

    def _guided(self, body: dict[str, Any], wanted: dict[str, Any]) -> Output | None:
        """What a schema or a call decides; None if nothing does."""
        guide = body.get("structured_outputs") or {}
        form = body.get("response_format") or {}
        if not isinstance(guide, dict) or not isinstance(form, dict):
            raise Bad("a guide must be an object")
        tokens = wanted["max_tokens"]
        try:
            if "choice" in guide:
                return model.said(str(guide["choice"][0]), tokens)
            if "json" in guide:
                return model.said(self.guided(guide["json"]), tokens)
            if guide:
                raise Bad("only choice and json are known")
            if form.get("type") == "json_schema":
                return model.said(self.guided(form["json_schema"]["schema"]), tokens)
            if isinstance(body.get("tool_choice"), dict):
                return model.said(self.guided(_function(body).get("parameters", {})), tokens)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise Bad(f"the guide is none: {error}") from error
        return None

    def _choice(
        self, index: int, output: Output, wanted: Any, body: Any, api: str, echo: Any
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "finish_reason": output.finish,
            "stop_reason": output.stop,
        }
        if body.get("return_token_ids"):
            choice["token_ids"] = [one.token for one in output.steps]
        told = [Step(0, text, None, {}) for text in echo or ()] + output.steps
        choice["logprobs"] = self._logprobs(told, 0, api) if wanted["logprobs"] else None
        if api == "completions":
            text = output.text
            return choice | {"text": text if echo is None else self.echoed("".join(echo), text)}
        message: dict[str, Any] = {"role": "assistant", "content": output.text}
        if isinstance(body.get("tool_choice"), dict):
            call = {"id": f"call-{index}", "type": "function"}
            call |= {"function": {"name": _function(body)["name"], "arguments": output.text}}  # type: ignore[dict-item]
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return choice | {"message": message}

    def _pieces(
        self, index: int, output: Output, wanted: Any, body: Any, api: str, echo: Any
    ) -> list[dict[str, Any]]:
        """A choice's events."""
        found: list[dict[str, Any]] = []
        is_call, start = isinstance(body.get("tool_choice"), dict) and api == "chat", 0
        pieces = self.arguments(output.pieces) if is_call else output.pieces
        if api == "chat":
            found.append(
                {
                    "index": index,
                    "delta": {"role": "assistant", "content": ""},
                    "finish_reason": None,
                }
            )
        if echo is not None:
            told = [Step(0, text, None, {}) for text in echo]
            first = {"index": index, "text": "".join(echo), "finish_reason": None}
            first["logprobs"] = self._logprobs(told, 0, api) if wanted["logprobs"] else None
            found.append(first)
            start = len("".join(echo))
        for place, (one, text) in enumerate(zip(output.steps, pieces, strict=True)):
            is_last = place == len(output.steps) - 1
            raw: dict[str, Any] = {
                "index": index,
                "finish_reason": output.finish if is_last else None,
            }
            raw["stop_reason"] = output.stop if is_last else None
            raw["logprobs"] = self._logprobs([one], start, api) if wanted["logprobs"] else None
            start += len(one.text)
            if body.get("return_token_ids"):
                raw["token_ids"] = [one.token]
            if is_call:
                call: dict[str, Any] = {"index": 0, "function": {"arguments": text}}
                if place == 0:
                    call |= {"id": f"call-{index}", "type": "function"}
                    call["function"]["name"] = _function(body)["name"]
                raw["delta"] = {"tool_calls": [call]}
            else:
                raw |= {"text": text} if api == "completions" else {"delta": {"content": text}}
            found.append(raw)
        return found

    def _logprobs(self, steps: list[Step], start: int, api: str) -> dict[str, Any]:
        if api == "chat":
            each = [
                {
                    "token": one.text,
                    "logprob": one.logprob,
                    "top_logprobs": [{"token": t, "logprob": p} for t, p in one.tops.items()],
                }
                for one in steps
            ]
            return {"content": each}
        return {
            "tokens": [one.text for one in steps],
            "token_logprobs": [one.logprob for one in steps],
            "top_logprobs": [one.tops for one in steps],
            "text_offset": self.offsets(steps, start),
        }

    def respond(self, body: Any) -> list[dict[str, Any]]:
        """The events of a response."""
        if (
            not isinstance(body, dict)
            or not isinstance(body.get("input"), str)
            or not body["input"]
        ):
            raise Bad("input must be a text")
        self.check({"max_tokens": body.get("max_output_tokens")})
        wanted = self.wanted(
            {"max_tokens": body.get("max_output_tokens"), "temperature": 0}, "chat"
        )
        output = self.complete(self.context(body["input"]), wanted, 0)
        content = [{"type": "output_text", "text": output.text}]
        done = {
            "id": "resp-1",
            "object": "response",
            "output": [{"type": "message", "content": content}],
        }
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": done | {"output": []}}
        ]
        events += [{"type": "response.output_text.delta", "delta": one} for one in output.pieces]
        events.append({"type": "response.completed", "response": done})
        return [event | {"sequence_number": place} for place, event in enumerate(events)]

    def embed(self, body: Any) -> dict[str, Any]:
        texts = body.get("input") if isinstance(body, dict) else None
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            raise Bad("input must be a text or a list of texts")
        data = [
            {"index": place, "object": "embedding", "embedding": self.embedding(text, place)}
            for place, text in enumerate(texts)
        ]
        return {"object": "list", "model": NAME, "data": data}


def _conversation(messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        raise Bad("messages must be a list of messages")
    said = ""
    for one in messages:
        content = one.get("content") if isinstance(one, dict) else None
        if not isinstance(content, str) or not isinstance(one.get("role"), str):
            raise Bad("a message has a role and a content")
        said += f"[{one['role']}]{content}"
    return said


def _function(body: dict[str, Any]) -> dict[str, Any]:
    """The function that is to be called."""
    wanted = body["tool_choice"].get("function") or {}
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") or {}
        if isinstance(wanted, dict) and function.get("name") == wanted.get("name") is not None:
            return dict(function)
    raise Bad("tool_choice names no tool")


class Running:
    """A server on a free port of this machine, as a context.

    Attributes:
        url: Its base URL.
    """

    def __init__(self, scripted: Scripted, handler: "type[Handler] | None" = None) -> None:
        kind = type("Bound", (handler or Handler,), {"scripted": scripted})
        self._server = _Server(("127.0.0.1", 0), kind)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "Running":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave: that is no news."""


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP of a Scripted."""

    scripted: Scripted
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.whole(200, {"object": "list", "data": [{"id": NAME, "object": "model"}]})
        elif self.path == "/health":
            self.whole(200 if self.scripted.is_well else 503, {})
        else:
            self.whole(404, {"error": {"message": "no such place", "code": 404}})

    def do_PUT(self) -> None:
        self.body()
        self.whole(405, {"error": {"message": "no such method", "code": 405}})

    def do_POST(self) -> None:
        raw = self.body()
        if raw is None:
            self.close_connection = True
            return
        if not self.scripted.is_well:
            self.whole(500, {"error": {"message": "the engine is dead", "code": 500}})
            return
        self.scripted.enter()
        try:
            self._post(raw)
        except OSError:
            self.scripted.left()
        except BaseException:
            self.scripted.leave()
            raise
        else:
            self.scripted.leave()

    def _post(self, raw: bytes) -> None:
        try:
            body = self.read_json(raw)
            if self.path in ("/v1/completions", "/v1/chat/completions"):
                api = "chat" if "chat" in self.path else "completions"
                whole, stream = self.scripted.answer(body, api)
                if body.get("stream"):
                    self.stream(self.scripted.events(stream))
                else:
                    self.whole(200, whole)
            elif self.path == "/v1/responses":
                events = self.scripted.respond(body)
                if body.get("stream"):
                    self.stream([json.dumps(event) for event in events])
                else:
                    self.whole(200, events[-1]["response"])
            elif self.path == "/v1/embeddings":
                self.whole(200, self.scripted.embed(body))
            else:
                self.whole(404, {"error": {"message": "no such place", "code": 404}})
        except Bad as error:
            self.whole(*self.scripted.refused(str(error)))
        except OSError:
            raise
        except Exception as error:  # a mistake of this file's
            self.whole(500, {"error": {"message": f"{type(error).__name__}: {error}", "code": 500}})

    def read_json(self, raw: bytes) -> Any:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Bad(f"the body is no JSON: {error}") from error

    def body(self) -> bytes | None:
        """The body; None if the client has gone before its end."""
        size = int(self.headers.get("Content-Length") or 0)
        found = self.rfile.read(size)
        return found if len(found) == size else None

    def whole(self, status: int, body: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", self.kind(status))
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def kind(self, status: int) -> str:
        return "application/json"

    def stream(self, events: list[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for raw in self.chunks([f"data: {event}\n\n".encode() for event in events]):
            self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
            self.pause()
        with suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")

    def chunks(self, events: list[bytes]) -> list[bytes]:
        """How the events are cut into HTTP's chunks."""
        return events

    def pause(self) -> None:
        """Between two chunks."""
