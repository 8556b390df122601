"""A stream says what a whole answer says, in the form of server-sent events."""

import json
from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Broken, Capabilities, Property, demand
from paged_conformance.server.answers import Answer, Choice
from paged_conformance.server.client import PATHS, Client
from paged_conformance.server.compare import UNREADABLE, confirmed, near, part, said
from paged_conformance.server.probe import TELL, Target
from paged_conformance.server.requests import apis, requests
from paged_conformance.server.wire import DONE

FINISHES = {"stop", "length", "tool_calls", "content_filter", "function_call"}


def _asked(has: Capabilities, api: str) -> st.SearchStrategy[Any]:
    return requests(has, api)


def _with_tools(has: Capabilities) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["tell", "look_up", "a"])
    kinds = st.sampled_from(["string", "integer", "boolean", "number", "array"])
    fields = st.dictionaries(st.sampled_from(["x", "who", "y z", "ü"]), kinds, max_size=3)

    def of(request: Any, name: str, types: dict[str, str]) -> Any:
        schema = {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in types.items()},
            "required": sorted(types),
            "additionalProperties": False,
        }
        function = {"name": name, "parameters": schema}
        wanted = {"type": "function", "function": {"name": name}}
        others = [] if name == "tell" else [TELL]
        tools = [{"type": "function", "function": function}, *others]
        more: dict[str, Any] = {"tools": tools, "tool_choice": wanted}
        plain = {key: request["body"][key] for key in ("messages", "temperature")}
        limit = {"max_tokens": 2 * request["body"]["max_tokens"]}
        return request | {"body": plain | more | limit}

    return st.builds(of, requests(has, "chat", samples=False, whole=False), names, fields)


def check_stream(make: Target, example: Any) -> None:
    """Whole, as a stream, and whole again: the stream is wrong if only it differs."""
    client = make()

    def check() -> None:
        before = client.ask(example)
        stream = client.ask(example, stream=True, must=True)
        after = client.ask(example, must=True)
        what = said(example)
        if _differs(before, after) is None:
            _agree(after, stream, what, drawn=_drawn(example))

    # Numbers tell a tie. Without them a difference must come again.
    confirmed(check, 1 if "logprobs" in example["body"] and not _drawn(example) else 3)


def _drawn(example: Any) -> bool:
    return bool(example["body"].get("temperature"))


def _differs(one: Answer, other: Answer) -> str | None:
    if one.choices.keys() != other.choices.keys():
        return "choices"
    for index, choice in one.choices.items():
        if choice.facts() != other.choices[index].facts():
            return f"choice {index}"
    return None


def _agree(whole: Answer, stream: Answer, what: str, *, drawn: bool) -> None:
    indexes = sorted(whole.choices), sorted(stream.choices)
    demand(indexes[0] == indexes[1], f"choices {indexes[0]} whole, {indexes[1]} streamed: {what}")
    for index, choice in whole.choices.items():
        streamed = stream.choices[index]
        if choice.tokens != streamed.tokens and not drawn and _parted(choice, streamed, what):
            return
        facts, others = choice.facts(), streamed.facts()
        if any(UNREADABLE in token for token in choice.tokens):
            # A stream waits for the whole character; how long its parts are is open.
            del facts["offsets"], facts["tokens"]
        for name, fact in facts.items():
            demand(
                fact == others[name],
                f"the {name} of choice {index} is {fact!r} whole, "
                f"{others[name]!r} streamed: {what}",
            )
        demand(
            near(choice.logprobs, streamed.logprobs),
            f"log-probabilities {choice.logprobs} whole, {streamed.logprobs} streamed: {what}",
        )
        _never_taken_back(choice, streamed, what)
    if stream.usage is not None and whole.usage is not None:
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            pair = whole.usage.get(name), stream.usage.get(name)
            demand(
                pair[0] == pair[1], f"usage.{name} is {pair[0]} whole, {pair[1]} streamed: {what}"
            )


def _parted(choice: Choice, streamed: Choice, what: str) -> bool:
    """Whether they part at a tie, as other requests in the same batch may make them."""
    if len(choice.tokens) != len(streamed.tokens):
        return False
    return part(choice, streamed, f"whole and streamed, {what}") is not None


def _never_taken_back(choice: Choice, streamed: Choice, what: str) -> None:
    so_far = ""
    for piece in streamed.pieces:
        so_far += piece
        demand(
            choice.text.startswith(so_far),
            f"the stream has said {so_far!r}, and the text is {choice.text!r}: {what}",
        )


def check_events(make: Target, example: Any) -> None:
    """The form of a stream: its type, each event, and the end."""
    client = make()
    stream: dict[str, Any] = {"stream": True}
    if "usage" in example["ask"]:
        stream["stream_options"] = {"include_usage": True}
    reply = client.post(PATHS[example["api"]], client.body(example, **stream))
    what = said(example)
    if reply.status != 200:
        client.ask(example)  # says what is wrong, or that it is refused either way
        raise Broken(f"a stream is refused and the whole answer is not: {reply.status}: {what}")
    kind = reply.headers.get("content-type", "")
    demand(reply.is_stream, f"the content type of a stream is {kind!r}: {what}")
    demand(not reply.stray, f"lines that are no events: {reply.stray[:3]}: {what}")
    demand(
        reply.events[-1:] == [DONE], f"the last event is {reply.events[-1:]}, not [DONE]: {what}"
    )
    demand(reply.events.count(DONE) == 1, f"{reply.events.count(DONE)} events [DONE]: {what}")
    events = []
    for event in reply.events[:-1]:
        try:
            events.append(json.loads(event))
        except ValueError as error:
            raise Broken(f"an event is no JSON: {event[:200]!r}: {what}") from error
    _check_bodies(example, events, what)


def _check_bodies(example: Any, events: list[Any], what: str) -> None:
    ended: set[int] = set()
    roles: dict[int, bool] = {}
    names = {"completions": "text_completion", "chat": "chat.completion.chunk"}
    for event in events:
        demand("error" not in event, f"an error within a stream: {event}: {what}")
        for name in ("id", "model", "created"):
            demand(
                event.get(name) == events[0].get(name) is not None,
                f"{name} is {events[0].get(name)!r} and later {event.get(name)!r}: {what}",
            )
        demand(
            event.get("object") == names[example["api"]], f"object {event.get('object')!r}: {what}"
        )
        for raw in event["choices"]:
            index = raw["index"]
            says = raw.get("text") or (raw.get("delta") or {}).get("content")
            demand(not (index in ended and says), f"{says!r} after choice {index}'s end: {what}")
            if example["api"] == "chat" and index not in roles:
                role = raw["delta"].get("role")
                demand(role == "assistant", f"choice {index} begins with the role {role!r}: {what}")
                roles[index] = True
            if raw.get("finish_reason") is not None:
                demand(
                    raw["finish_reason"] in FINISHES, f"ends by {raw['finish_reason']!r}: {what}"
                )
                demand(index not in ended, f"choice {index} ends twice: {what}")
                ended.add(index)
    asked = example["body"].get("n", 1) * _num_prompts(example)
    demand(ended == set(range(asked)), f"choices {sorted(ended)} have ended, of {asked}: {what}")
    if "usage" in example["ask"]:
        last = events[-1]
        right = bool(last.get("usage")) and not last["choices"]
        demand(right, f"the event before [DONE] has no usage alone: {last}: {what}")


def _num_prompts(example: Any) -> int:
    prompt = example["body"].get("prompt")
    return len(prompt) if isinstance(prompt, list) and isinstance(prompt[0], str | list) else 1


def check_call(make: Target, example: Any) -> None:
    """A call that was named: its name, arguments in JSON, one id; and the stream says the same."""
    client = make()
    name = example["body"]["tool_choice"]["function"]["name"]
    for answer in (client.ask(example), client.ask(example, stream=True, must=True)):
        choice = answer.first
        if choice.finish == "length":
            continue
        calls = choice.calls
        right = len(calls) == 1 and calls[0]["name"] == name and calls[0]["id"]
        demand(bool(right), f"the call of {name!r} is {calls}: {said(example)}")
        try:
            json.loads(calls[0]["arguments"])
        except ValueError as error:
            raise Broken(f"arguments are no JSON: {calls}: {said(example)}") from error
    check_stream(make, example)


def _any_api(has: Capabilities) -> st.SearchStrategy[Any]:
    return st.sampled_from(apis(has, "streams")).flatmap(lambda api: _asked(has, api))


def check_responses(make: Target, example: Any) -> None:
    """The events of a response: numbered, its texts joined are the last event's text."""
    client = make()
    body = {"model": client.model, "input": example["input"], "temperature": 0}
    body |= {"max_output_tokens": example["tokens"]}
    reply = client.post("/responses", body | {"stream": True})
    what = json.dumps(body)
    if reply.status != 200:
        demand(reply.status < 500, f"{what} got {reply.status}: {reply.short()}")
        return
    events = [json.loads(event) for event in reply.events if event != DONE]
    _check_response(client, events, what)


def _check_response(client: Client, events: list[Any], what: str) -> None:
    kinds = [event.get("type") for event in events]
    demand(
        bool(kinds) and kinds[0] == "response.created", f"the first event is {kinds[:1]}: {what}"
    )
    ends = {"response.completed", "response.incomplete"}
    demand(kinds[-1] in ends, f"the last event is {kinds[-1]}: {what}")
    numbers = [event.get("sequence_number") for event in events]
    first = numbers[0] or 0
    demand(
        numbers == list(range(first, first + len(numbers))),
        f"events are numbered {numbers}: {what}",
    )
    joined = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    content = [
        piece.get("text", "")
        for item in events[-1]["response"]["output"]
        for piece in item.get("content") or ()
        if piece.get("type") == "output_text"
    ]
    demand(joined == "".join(content), f"pieces {joined!r}, the text {content!r}: {what}")


PROPERTIES = (
    Property(
        "completion-stream-is-whole",
        "A completion's stream joins to the whole answer: texts, ends, log-probabilities with "
        "their offsets, token ids and usage; no text is taken back.",
        lambda has: _asked(has, "completions"),
        check_stream,
        invariant="I50",
        needs=("completions", "streams"),
    ),
    Property(
        "chat-stream-is-whole",
        "A chat's stream joins to the whole answer: texts, reasoning, ends, log-probabilities and "
        "usage; no text is taken back.",
        lambda has: _asked(has, "chat"),
        check_stream,
        invariant="I50",
        needs=("chat", "chat-streams"),
    ),
    Property(
        "call-stream-is-whole",
        "A named tool is called by its name with arguments in JSON, streamed as whole.",
        _with_tools,
        check_call,
        invariant="I50",
        needs=("tools", "chat-streams"),
    ),
    Property(
        "stream-events",
        "A stream is of server-sent events of one id, each choice ends once, a chat begins with "
        "its role, usage comes last, and then [DONE].",
        _any_api,
        check_events,
        needs=("any-streams",),
    ),
    Property(
        "response-events",
        "The events of a streamed response are numbered without a gap, and join to its text.",
        lambda has: st.fixed_dictionaries(
            {
                "input": st.text("abc é🙂", min_size=1, max_size=12),
                "tokens": st.integers(16, 24),
            }
        ),
        check_responses,
        needs=("responses",),
    ),
)
