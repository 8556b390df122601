"""Many clients at once: histories of requests, and clients that leave at any moment."""

import json
import time
from functools import partial
from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Broken, Capabilities, Lacking, Property, demand
from paged_conformance.server.answers import Answer
from paged_conformance.server.client import BUSY, PATHS, Client, encoded
from paged_conformance.server.compare import said
from paged_conformance.server.crowd import together
from paged_conformance.server.greedy import same
from paged_conformance.server.hostile import bystander, send, survives
from paged_conformance.server.probe import Target
from paged_conformance.server.requests import apis, requests


def _leaves(has: Capabilities) -> st.SearchStrategy[Any]:
    """How a client leaves: after some events of a stream, or without reading at all."""
    api = st.sampled_from(apis(has))
    fields = {
        "api": api,
        "n": st.integers(1, 2),
        "tokens": st.sampled_from([1, 8, 100]),
        "words": st.sampled_from([1, 60]),
    }
    ways: list[st.SearchStrategy[Any]] = [
        st.fixed_dictionaries(
            fields
            | {
                "leave": st.just("at once"),
                "after_ms": st.sampled_from([0, 1, 5, 20, 80]),
                "half": st.booleans(),
                "reset": st.booleans(),
                "stream": st.booleans(),
            }
        )
    ]
    if "any-streams" in has:
        streams = {
            "leave": st.just("events"),
            "events": st.integers(1, 5),
            "api": st.sampled_from(apis(has, "streams")),
        }
        ways.append(st.fixed_dictionaries(fields | streams))
    return st.one_of(ways)


def leave(client: Client, one: Any) -> None:
    """Sends a request and leaves it."""
    text = "one two three " * one["words"]
    said_: dict[str, Any] = {"prompt": text}
    if one["api"] == "chat":
        said_ = {"messages": [{"role": "user", "content": text}]}
    body = {
        "model": client.model,
        "max_tokens": one["tokens"],
        "n": one["n"],
        "temperature": 1.0,
    } | said_
    path = PATHS[one["api"]]
    if one["leave"] == "events":
        reply = client.post(path, body | {"stream": True}, events=one["events"])
        good = reply.status < 500 or reply.status in BUSY
        demand(good, f"{path} {json.dumps(body)[:300]} got {reply.status}: {reply.short()}")
        return
    raw = encoded(body | {"stream": one["stream"]})
    client.wire.leave(path, raw, one["after_ms"] / 1000, half=one["half"], reset=one["reset"])


def check_storm(make: Target, example: Any) -> None:
    """Clients leave all at once, wave after wave; then as many are answered as ever."""
    client = make()
    what = f"a storm of clients that leave: {json.dumps(example)}"
    clients = make.sizes["clients"]
    for _ in range(example["waves"]):
        jobs = [(json.dumps(one), partial(leave, client, one)) for one in example["clients"]]
        survives(make, client, jobs, what)
    request = bystander(make)

    def ask() -> Answer:
        return client.ask(request, must=True)

    try:
        together([ask] * clients, make.seconds_left())
    except Lacking:
        return
    except Broken as error:
        raise type(error)(f"{clients} clients after {what}: {error}") from error
    _nothing_left(make, what)


def _nothing_left(make: Target, what: str) -> None:
    """Gauges of requests, where a server has vLLM's names for them, come down to 0."""
    if "metrics" not in make.capabilities:
        return
    end = time.monotonic() + make.sizes["patience"] / 2
    while left := [line for line in gauges(make.client) if float(line.split()[-1])]:
        if time.monotonic() > end:
            raise Broken(f"nobody asks any more, and {left}, after {what}")
        time.sleep(0.1)


def gauges(client: Client) -> list[str]:
    """Lines of /metrics that say how many requests run and wait."""
    page = client.wire.send("GET", "//metrics").body.decode(errors="replace")
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return [line for line in page.splitlines() if line.startswith(names) and "_by_" not in line]


def _histories(has: Capabilities) -> st.SearchStrategy[Any]:
    asked = st.sampled_from(apis(has)).flatmap(
        lambda api: requests(has, api, samples=False, whole=False)
    )
    step = st.one_of(
        st.fixed_dictionaries({"do": st.just("ask"), "request": asked, "stream": st.booleans()}),
        st.fixed_dictionaries({"do": st.just("again"), "place": st.integers(0, 5)}),
        _leaves(has).map(lambda one: one | {"do": "leave"}),
        st.fixed_dictionaries(
            {"do": st.just("wrong"), "field": st.sampled_from(["temperature", "max_tokens", "n"])}
        ),
        st.fixed_dictionaries(
            {"do": st.just("look"), "path": st.sampled_from(["//health", "/models", "//metrics"])}
        ),
    )
    history = st.lists(step, min_size=1, max_size=5)
    return st.fixed_dictionaries(
        {"clients": st.lists(history, min_size=1, max_size=has.sizes.get("clients", 6))}
    )


def check_clients(make: Target, example: Any) -> None:
    """Each client goes through its history; each request is then asked again, alone."""
    client = make()
    found: list[tuple[Any, Answer]] = []
    jobs = [
        (json.dumps(steps)[:1000], partial(_go, make, client, steps, found))
        for steps in example["clients"]
    ]
    survives(make, client, jobs, f"clients of {json.dumps(example)[:1000]}")
    for request, answer in found:
        alone = client.ask(request, must=True)
        same(answer, alone, f"among other clients and alone: {said(request)}")
        if not alone.first.tokens:
            _same_texts(client, request, answer, alone)
    if any(step["do"] == "leave" for steps in example["clients"] for step in steps):
        _nothing_left(make, f"clients of {json.dumps(example)[:1000]}")


def _same_texts(client: Client, request: Any, answer: Answer, alone: Answer) -> None:
    """Without log-probabilities nobody knows of ties: only texts of other prompts are told."""
    usage, other = answer.usage, alone.usage
    if usage is not None and other is not None:
        pair = usage["prompt_tokens"], other["prompt_tokens"]
        demand(pair[0] == pair[1], f"{pair} tokens of one prompt: {said(request)}")


def _go(make: Target, client: Client, steps: Any, found: list[tuple[Any, Answer]]) -> None:
    mine: list[Any] = []
    for step in steps:
        if step["do"] == "ask":
            mine.append(step["request"])
            _ask(make, client, step["request"], step["stream"], found)
        elif step["do"] == "again" and mine:
            _ask(make, client, mine[step["place"] % len(mine)], False, found)
        elif step["do"] == "leave":
            leave(client, step)
        elif step["do"] == "wrong":
            api = client.api or "completions"
            body = client.body(
                {"body": {"prompt": "one", "messages": [{"role": "user", "content": "a"}]}}
            )
            del body["messages" if api == "completions" else "prompt"]
            send(client, PATHS[api], body | {step["field"]: {}})
        elif step["do"] == "look":
            client.wire.send("GET", step["path"])


def _ask(
    make: Target, client: Client, request: Any, stream: bool, found: list[tuple[Any, Answer]]
) -> None:
    prefix = "" if request["api"] == "completions" else "chat-"
    try:
        answer = client.ask(request, stream=stream and f"{prefix}streams" in make.capabilities)
    except Lacking:
        return
    found.append((request, answer))


PROPERTIES = (
    Property(
        "storms",
        "Clients that leave at any moment, all at once, harm nobody else and leave nothing behind.",
        lambda has: st.fixed_dictionaries(
            {
                "clients": st.lists(
                    _leaves(has), min_size=1, max_size=3 * has.sizes.get("clients", 6)
                ),
                "waves": st.integers(1, 2),
            }
        ),
        check_storm,
        invariant="I22",
    ),
    Property(
        "clients",
        "Whatever many clients do at once, each gets the answers that it gets alone, but for ties.",
        _histories,
        check_clients,
        invariant="I36",
    ),
)
