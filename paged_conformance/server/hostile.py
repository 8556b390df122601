"""What any request may be answered with, however odd; and that nobody else notices it."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from paged_conformance.properties import Broken, Lacking, demand
from paged_conformance.server.answers import Answer
from paged_conformance.server.client import BUSY, Client, base
from paged_conformance.server.crowd import together
from paged_conformance.server.greedy import same
from paged_conformance.server.probe import Target
from paged_conformance.server.wire import DONE, Late, Reply, Unanswered

UNSUPPORTED = 501


def survives(
    make: Target, client: Client, jobs: Sequence[tuple[str, Callable[[], Any]]], what: str
) -> None:
    """Runs jobs while a bystander's request is answered as ever; then the server is well.

    Args:
        jobs: What each asks in words, and the asking.
        what: All of them in words.

    Raises:
        Broken: A job's own, or the bystander was kept waiting, failed or answered otherwise, or
            the server has ended.
    """
    request = bystander(make)
    before = make.bystander = make.bystander or client.ask(request)
    open_ones = {place: asks for place, (asks, _) in enumerate(jobs)}

    def work(place: int) -> None:
        jobs[place][1]()
        del open_ones[place]

    asks: list[Callable[[], Any]] = [lambda: _stand_by(client, request, what)]
    asks += [partial(work, place) for place in range(len(jobs))]
    failure: Broken | Lacking | None = None
    during: Answer | None = None
    try:
        during = together(asks, make.seconds_left())[0]
    except (Broken, Lacking) as error:
        failure = error
    ill = client.settle(2)
    if ill:
        make.lost()
        left = f"; not answered well: {'; '.join(open_ones.values())}" if open_ones else ""
        raise Broken(f"the server has ended or hangs after {what}{left}: {ill}")
    if failure is not None:
        raise failure
    after = client.ask(request, must=True)
    for answer, when in ((during, "beside"), (after, "after")):
        if answer is not None and "any-logprobs" in make.capabilities:
            same(before, answer, f"a bystander {when} {what}")


def bystander(make: Target) -> dict[str, Any]:
    """A greedy request of a few tokens, with log-probabilities where there are any."""
    has = make.capabilities
    if "logprobs" in has:
        return base("completions", max_tokens=10, logprobs=4)
    if "chat-logprobs" in has:
        return base("chat", max_tokens=10, logprobs=True, top_logprobs=4)
    return base("completions" if "completions" in has else "chat", max_tokens=10)


def _stand_by(client: Client, request: dict[str, Any], what: str) -> Answer:
    try:
        return client.ask(request, must=True)
    except Broken as error:
        waited = " was kept waiting" if isinstance(error, Late) else ""
        raise type(error)(f"a bystander of {what}{waited}: {error}") from error


def outlives(make: Target, sent: Sequence[tuple[str, Any]], *, form: bool) -> None:
    """Sends bodies to places all at once, beside a bystander; then the server is well.

    Args:
        form: Each must be answered in form. Without it a failure is an answer as well.
    """
    ask = send if form else _try
    jobs = [
        (f"{path} {json.dumps(body)[:800]}", partial(ask, make.client, path, body))
        for path, body in sent
    ]
    survives(make, make.client, jobs, "; ".join(asks for asks, _ in jobs))


def _try(client: Client, path: str, body: Any) -> None:
    with suppress(Unanswered):
        client.post(path, body)


def send(client: Client, path: str, body: Any, *, refuse: bool = False) -> Reply:
    """Sends anything, and demands an answer in form.

    Args:
        refuse: It must be an error.
    """
    reply = client.post(path, body)
    shown = body[:300] if isinstance(body, bytes) else json.dumps(body)[:600]
    in_form(reply, f"{path} {shown!s}")
    if refuse:
        demand(reply.status >= 400, f"{path} {shown!s} got {reply.status}: {reply.short()}")
    return reply


def in_form(reply: Reply, what: str) -> None:
    """A 200 with JSON or a stream that ends, or an error of the client's with JSON that says it."""
    if reply.status in (*BUSY, UNSUPPORTED):
        return
    demand(
        reply.status < 500, f"{what} got {reply.status}, a failure of the server: {reply.short()}"
    )
    if reply.is_stream:
        _stream_in_form(reply, what)
        return
    body = reply.json()
    demand(body is not None, f"{what} got {reply.status} and no JSON: {reply.short()}")
    if reply.status >= 400:
        says = isinstance(body, dict) and any(key in body for key in ("error", "message", "detail"))
        demand(says, f"{what} got {reply.status} and nothing that says why: {reply.short()}")


def _stream_in_form(reply: Reply, what: str) -> None:
    demand(reply.events[-1:] == [DONE], f"the stream of {what} ends with {reply.events[-1:]}")
    for event in reply.events[:-1]:
        try:
            body = json.loads(event, parse_constant=_no_constant)
        except ValueError as error:
            raise Broken(f"an event of {what} is no JSON: {event[:200]}") from error
        says = body.get("error") if isinstance(body, dict) else None
        code = says.get("code") if isinstance(says, dict) else None
        failed = isinstance(code, int) and code >= 500 and code != UNSUPPORTED
        demand(not failed, f"the stream of {what} fails: {event[:300]}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
