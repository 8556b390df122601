"""Odd values, prompts and bodies: answered or refused, in form, and nobody else notices."""

import json
from functools import partial
from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Capabilities, Property, demand
from paged_conformance.server.client import PATHS, encoded
from paged_conformance.server.hostile import in_form, outlives, send, survives
from paged_conformance.server.odd_values import GROUPS, IN_ORDER, MESSAGES, PROMPTS, STRANGE
from paged_conformance.server.probe import Target
from paged_conformance.server.requests import apis
from paged_conformance.server.smaller import smaller

MANY = (12, 24)  # requests at once, from and to: most are refused at once
WAYS = ("one of a group",) * 4 + ("a pair", "many")


@st.composite
def _valued(draw: st.DrawFn, has: Capabilities) -> Any:
    """A request with odd values: of one field, beside others in order, or of a whole group."""
    api = draw(st.sampled_from(apis(has)))
    body: dict[str, Any] = {"max_tokens": 6, "temperature": 0}
    group = GROUPS[draw(st.sampled_from(sorted(GROUPS)))]
    way = draw(st.sampled_from(WAYS))
    if way == "many":
        for name, values in group.items():
            if draw(st.booleans()):
                body[name] = draw(values)
        return {"api": api, "body": body}
    # What is refused hides what stands beside it, so only one value is odd.
    name = draw(st.sampled_from(sorted(group)))
    beside = sorted(group.keys() & IN_ORDER.keys() if way == "one of a group" else IN_ORDER)
    if way == "a pair":
        beside = [draw(st.sampled_from(beside))]
    for other in beside:
        if way == "a pair" or draw(st.booleans()):
            body[other] = draw(st.sampled_from(IN_ORDER[other]))
    odd = group[name] if draw(st.integers(0, 3)) else st.sampled_from(STRANGE)
    return {"api": api, "body": body | {name: draw(odd)}}


def check_values(make: Target, example: Any, *, form: bool = True) -> None:
    """All of them at once, beside a request in order."""
    client = make()
    sent = []
    for request in example["requests"]:
        said: dict[str, Any] = {"prompt": "one two three"}
        if request["api"] == "chat":
            said = {"messages": [{"role": "user", "content": "one two three"}]}
        sent.append((PATHS[request["api"]], {"model": client.model} | said | request["body"]))
    outlives(make, sent, form=form)


def _prompted(has: Capabilities) -> st.SearchStrategy[Any]:
    kinds = []
    more = {
        "echo": st.booleans(), "stream": st.booleans(), "logprobs": st.integers(0, 3),
        "n": st.integers(1, 2), "prompt_logprobs": st.integers(0, 2),
    }  # fmt: skip
    if "completions" in has:
        body = st.fixed_dictionaries(
            {"prompt": PROMPTS, "max_tokens": st.integers(1, 4)}, optional=more
        )
        kinds.append(st.fixed_dictionaries({"api": st.just("completions"), "body": body}))
    if "chat" in has:
        chosen = {name: more[name] for name in ("echo", "stream", "n")}
        body = st.fixed_dictionaries(
            {"messages": MESSAGES, "max_tokens": st.integers(1, 4)}, optional=chosen
        )
        kinds.append(st.fixed_dictionaries({"api": st.just("chat"), "body": body}))
    return st.fixed_dictionaries({"requests": st.lists(st.one_of(kinds), min_size=1, max_size=3)})


def check_prompts(make: Target, example: Any, *, form: bool = True) -> None:
    client = make()
    sent = [
        (PATHS[one["api"]], {"model": client.model} | one["body"]) for one in example["requests"]
    ]
    outlives(make, sent, form=form)


# No reader of requests can take these for what they should be.
NO_BODIES = (
    "", "{", "null", "[]", "5", '"prompt"', "{]", '{"model":', "\ufeff{}x", "{'model': 1}",
    "[" * 3000,
    '{"a":' * 3000, "nul", "\0", '{"model": "x"} {}', "true",
)  # fmt: skip
WRONG: tuple[tuple[str, Any], ...] = (
    ("max_tokens", "many"), ("max_tokens", [1]), ("max_tokens", {}), ("temperature", "hot"),
    ("temperature", [1]), ("temperature", {}), ("top_p", "x"), ("top_p", [0.5]), ("n", "two"), ("n",
    [1]), ("stream", "perhaps"),
    ("stream", [True]), ("stream", {"a": 1}), ("stop", {"a": 1}), ("messages", 5), ("messages",
    "x"),
    ("messages", {"role": "user"}), ("messages", [5]), ("presence_penalty", "x"),
    ("presence_penalty", [1]), ("frequency_penalty", {}),
)  # fmt: skip


def _broken_bodies(has: Capabilities) -> st.SearchStrategy[Any]:
    api = st.sampled_from(apis(has))
    raw = st.fixed_dictionaries({"api": api, "raw": st.sampled_from(NO_BODIES)})
    wrong = st.fixed_dictionaries({"api": api, "wrong": st.sampled_from(WRONG).map(list)})
    cut = st.fixed_dictionaries({"api": api, "cut": st.integers(1, 60)})
    return st.fixed_dictionaries(
        {"bodies": st.lists(st.one_of(raw, wrong, cut), min_size=1, max_size=3)}
    )


def check_bodies(make: Target, example: Any) -> None:
    """No JSON, half of it, or a type that no reader takes: an error of the client's."""
    client = make()
    sent: list[tuple[str, Any]] = []
    for one in example["bodies"]:
        body = _base(client.model, one["api"])
        if "raw" in one:
            sent.append((PATHS[one["api"]], one["raw"].encode()))
        elif "cut" in one:
            whole = encoded(body)
            sent.append((PATHS[one["api"]], whole[: len(whole) - min(one["cut"], len(whole) - 1)]))
        else:
            field, value = one["wrong"]
            if field == "messages" and one["api"] != "chat":
                continue
            sent.append((PATHS[one["api"]], body | {field: value}))
    jobs = [
        (f"{path} {str(body)[:300]}", partial(send, client, path, body, refuse=True))
        for path, body in sent
    ]
    survives(make, client, jobs, json.dumps(example)[:600])


def _base(model: str, api: str) -> dict[str, Any]:
    said: dict[str, Any] = {"prompt": "one two"}
    if api == "chat":
        said = {"messages": [{"role": "user", "content": "one two"}]}
    return {"model": model, "max_tokens": 2} | said


PLACES = (
    "/completions", "/chat/completions", "/embeddings", "/responses", "/models", "/no/such/place",
    "//health", "//tokenize", "//detokenize", "/messages", "/score", "/rerank",
)  # fmt: skip


def check_places(make: Target, example: Any) -> None:
    """Any method and JSON anywhere: never a failure of the server's, and no end of it."""
    client = make()

    def one(method: str, path: str, body: Any) -> None:
        reply = client.wire.send(method, path, None if method == "GET" else encoded(body))
        what = f"{method} {client.wire.place(path)} {json.dumps(body)[:300]}"
        demand(
            reply.status < 500 or reply.status in (501, 503),
            f"{what} got {reply.status}: {reply.short()}",
        )
        if reply.is_stream:
            in_form(reply, what)

    jobs = [(json.dumps(call)[:300], partial(one, *call)) for call in example["calls"]]
    survives(make, client, jobs, json.dumps(example)[:600])


def _calls() -> st.SearchStrategy[Any]:
    odd = st.one_of(st.sampled_from(STRANGE), st.text(max_size=5), st.integers())
    names = (
        "model", "input", "prompt", "messages", "tokens", "text_1", "text_2", "query", "documents",
        "max_tokens", "encoding_format", "dimensions",
    )  # fmt: skip
    body = st.one_of(odd, st.dictionaries(st.sampled_from(names), odd, max_size=4))
    call = st.tuples(st.sampled_from(["GET", "POST", "PUT"]), st.sampled_from(PLACES), body)
    return st.fixed_dictionaries({"calls": st.lists(call.map(list), min_size=1, max_size=4)})


def _many_valued(has: Capabilities) -> st.SearchStrategy[Any]:
    least, most = MANY
    several = st.lists(_valued(has), min_size=least, max_size=most)
    return st.fixed_dictionaries({"requests": several})


# What ends a server has properties of its own: a failure that is only told is met far more often.
PROPERTIES = (
    Property(
        "odd-values",
        "Values out of range or of other types, alone and together, are answered or refused with a "
        "reason.",
        _many_valued,
        check_values,
        smaller=smaller,
    ),
    Property(
        "values-end-nothing",
        "Whatever values stand together, the server lives, and nobody else is answered otherwise.",
        _many_valued,
        partial(check_values, form=False),
        smaller=smaller,
    ),
    Property(
        "odd-prompts",
        "Empty, huge, unreadable and mistyped prompts and messages are answered or refused with a "
        "reason.",
        _prompted,
        check_prompts,
        smaller=smaller,
    ),
    Property(
        "prompts-end-nothing",
        "Whatever a prompt is, the server lives, and nobody else is answered otherwise.",
        _prompted,
        partial(check_prompts, form=False),
        smaller=smaller,
    ),
    Property(
        "bad-bodies",
        "A body that is no JSON object, or has a field of a type that means nothing, is refused.",
        _broken_bodies,
        check_bodies,
    ),
    Property(
        "odd-places",
        "Any JSON may be sent anywhere: it is no failure of the server, and no end of it.",
        lambda has: _calls(),
        check_places,
    ),
)
