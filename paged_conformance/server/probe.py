"""Finds out what a server can do, by asking for a token or two."""

import math
import os
import time
from typing import Any

from paged_conformance.properties import Lacking
from paged_conformance.server.answers import Answer, of_whole
from paged_conformance.server.client import PATHS, Client, base
from paged_conformance.server.measured import numbers
from paged_conformance.server.speed import PATIENCE, TOKENS, WARMING_UP, seconds_a_token, suited
from paged_conformance.server.started import END_SECONDS, START_SECONDS, Started
from paged_conformance.server.wire import Late, Unanswered, Wire

TELL = {"type": "function", "function": {"name": "tell", "parameters": {"type": "object"}}}
YES = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
EXAMPLE = 6  # times the patience
# Fields that not every server knows: the word, a value that must be taken, one that must not.
FIELDS: tuple[tuple[str, str, Any, Any], ...] = (
    ("stop-token-ids", "stop_token_ids", [1], "one"),
    ("min-tokens", "min_tokens", 1, "one"),
    ("include-stop", "include_stop_str_in_output", True, "perhaps"),
    ("ignore-eos", "ignore_eos", True, "perhaps"),
    ("token-ids", "return_token_ids", True, "perhaps"),
    ("echo", "echo", True, "perhaps"),
    ("seeds", "seed", 7, "seven"),
)


class Target:
    """Makes clients of one server; what the properties' checks are given.

    Attributes:
        capabilities: What the server was seen to do.
        sizes: What suits its speed: `tokens` of an answer, `clients` at once, and
            seconds of `patience`.
        example_seconds: How long an example may take: after EXAMPLE times the patience it asks for
            nothing more, and each request that it has made ends. It may be made three times.
        client: The one that it gives.
        bystander: What a bystander of odd requests was answered at first; None before that.
    """

    def __init__(self, wire: Wire, options: dict[str, str]) -> None:
        """Asks the server for its models and what it can do.

        Raises:
            Lacking: It does not answer, has no model, or completes nothing.
        """
        self._was_well = True
        self.bystander: Answer | None = None
        self.sizes = {"tokens": TOKENS, "clients": int(options.get("clients", 6))}
        wire.patience = WARMING_UP * float(options.get("patience", PATIENCE))
        self._started = Started(options["start"], wire) if "start" in options else None
        try:
            self._find_out(wire, options)
        except BaseException:
            self.close()
            raise

    def _find_out(self, wire: Wire, options: dict[str, str]) -> None:
        if self._started is not None:
            self._started.again()
        self._model = options.get("model") or _model(wire)
        self.client = Client(wire, self._model, self.sizes)
        self.capabilities = _capabilities(self.client)
        if not {"completions", "chat"} & set(self.capabilities):
            raise Lacking(f"{wire.url} answers neither a completion nor a chat of {self._model!r}")
        self.client.api = "completions" if "completions" in self.capabilities else "chat"
        knows_eos = "ignore-eos" in self.capabilities
        pace = seconds_a_token(self.client, self.sizes["clients"], ignore_eos=knows_eos)
        patience, self.sizes["tokens"] = suited(pace)
        wire.patience = float(options.get("patience", patience))
        self.sizes["patience"] = math.ceil(wire.patience)
        self.example_seconds = (WARMING_UP + 2) * (EXAMPLE + 3) * wire.patience
        if self._started is not None:
            self.example_seconds += START_SECONDS + END_SECONDS
        numbers["seconds a token, with all clients at once"] = pace
        numbers["seconds of patience"] = wire.patience

    def __call__(self, **_: int) -> Client:
        """A client, if the server is well; one that has ended is started again if it can be.

        Raises:
            Broken: It was well after the example before, and has ended since.
            Lacking: It has ended before.
        """
        ill = self.client.settle(self.sizes["patience"] if self._was_well else 0)
        if ill and not self._was_well and self._started is not None:
            self._started.again()
            ill = self.client.settle(self.sizes["patience"])
        was_well, self._was_well = self._was_well, not ill
        if ill and was_well:
            raise Unanswered(f"the server was well after the example before, and is not now: {ill}")
        if ill:
            raise Lacking(f"a server that lives; it has ended: {ill}")
        self.client.end = time.monotonic() + EXAMPLE * self.client.wire.patience
        return self.client

    def seconds_left(self) -> float:
        """How long the requests of this example may still take, with the last one's patience."""
        return max(0.0, self.client.end - time.monotonic()) + 3 * self.client.wire.patience

    def close(self) -> None:
        """Ends the server if the suite has started it."""
        if self._started is not None:
            self._started.end()

    def lost(self) -> None:
        """An example has seen that the server is ill: the next ones are not to blame."""
        self._was_well = False


def connect(target: str, options: dict[str, str]) -> Target:
    """What makes clients of the server at a base URL.

    Args:
        options: `model` (the first that the server lists), `key` ($OPENAI_API_KEY), `patience` in
            seconds (20, and more for a slow server), `clients` at once (6), `start` (a command that
            starts the server, which is then started again where an example has ended it).
    """
    key = options.get("key") or os.environ.get("OPENAI_API_KEY")
    return Target(Wire(target, key, PATIENCE), options)


def _model(wire: Wire) -> str:
    try:
        reply = wire.send("GET", "/models")
    except Late as error:
        raise Lacking(f"{error}. It may still load its model: wait until it answers") from error
    except Unanswered as error:
        raise Lacking(f"{error}. Start the server, and wait until it has its model") from error
    body = reply.json()
    models = (body.get("data") if isinstance(body, dict) else None) or []
    if reply.status != 200 or not models:
        hint = "" if wire.place("") else ". A base URL usually ends with /v1"
        short = f"{reply.status} {reply.short()}"
        raise Lacking(f"GET {wire.place('/models')} names no model: {short}{hint}")
    return str(models[0]["id"])


def _capabilities(client: Client) -> frozenset[str]:
    found = {api for api in PATHS if _status(client, base(api)) == 200}
    for api in sorted(found):
        found |= _of_api(client, api, "" if api == "completions" else "chat-")
    main = "completions" if "completions" in found else "chat"
    for word, field, good, bad in FIELDS:
        taken = _status(client, base(main, **{field: good})) == 200
        if taken and 400 <= _status(client, base(main, **{field: bad})) < 500:
            found.add(word)
    if "completions" in found:
        found |= _of_prompts(client)
    if "chat" in found:
        found |= _of_chats(client)
    found |= _of_other_places(client)
    if found & {"json-schema", "tools", "structured-outputs"}:
        found.add("guides")
    for word in ("logprobs", "streams", "n"):
        if {word, f"chat-{word}"} & found:
            found.add(f"any-{word}")
    return frozenset(found)


def _of_api(client: Client, api: str, prefix: str) -> set[str]:
    """Streams, log-probabilities and samples of one endpoint."""
    found = set()
    reply = client.post(PATHS[api], client.body(base(api, stream=True)))
    if reply.status == 200 and reply.is_stream:
        found.add(f"{prefix}streams")
        usage = {"stream": True, "stream_options": {"include_usage": True}}
        reply = client.post(PATHS[api], client.body(base(api, **usage)))
        if reply.status == 200 and any('"prompt_tokens"' in event for event in reply.events):
            found.add(f"{prefix}stream-usage")
    wanted = {"logprobs": 3} if api == "completions" else {"logprobs": True, "top_logprobs": 3}
    answer = _answer(client, base(api, **wanted))
    if answer is not None and answer.first.logprobs and any(answer.first.tops):
        found.add(f"{prefix}logprobs")
    answer = _answer(client, base(api, n=2, temperature=1.0))
    if answer is not None and len(answer.choices) == 2:
        found.add(f"{prefix}n")
    return found


def _of_prompts(client: Client) -> set[str]:
    found = set()
    answer = _answer(client, base("completions", prompt=["one two", "three four"]))
    if answer is not None and len(answer.choices) == 2:
        found.add("prompt-lists")
    if _status(client, base("completions", prompt=[5, 6, 7])) == 200:
        found.add("token-prompts")
    guided = {"structured_outputs": {"choice": ["yes", "no"]}, "max_tokens": 8}
    answer = _answer(client, base("completions", **guided))
    if answer is not None and answer.first.text in ("yes", "no"):
        found.add("structured-outputs")
    return found


def _of_chats(client: Client) -> set[str]:
    found = set()
    named = {"type": "function", "function": {"name": "tell"}}
    answer = _answer(client, base("chat", tools=[TELL], tool_choice=named, max_tokens=16))
    if answer is not None and answer.first.calls:
        found.add("tools")
    schema = {"type": "json_schema", "json_schema": {"name": "yes", "schema": YES}}
    answer = _answer(client, base("chat", response_format=schema, max_tokens=32))
    if answer is not None and answer.first.text.lstrip().startswith("{"):
        found.add("json-schema")
    return found


def _of_other_places(client: Client) -> set[str]:
    found = set()
    if client.wire.send("GET", "//health").status == 200:
        found.add("health")
    page = client.wire.send("GET", "//metrics")
    if page.status == 200 and b"vllm:num_requests_running" in page.body:
        found.add("metrics")
    if client.post("/embeddings", {"model": client.model, "input": "one"}).status == 200:
        found.add("embeddings")
    body = {"model": client.model, "input": "one two", "max_output_tokens": 16}
    if client.post("/responses", body).status == 200:
        found.add("responses")
    return found


def _status(client: Client, request: dict[str, Any]) -> int:
    return client.post(PATHS[request["api"]], client.body(request)).status


def _answer(client: Client, request: dict[str, Any]) -> Any:
    """The answer; None if it is none."""
    reply = client.post(PATHS[request["api"]], client.body(request))
    try:
        return of_whole(request["api"], reply) if reply.status == 200 else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
