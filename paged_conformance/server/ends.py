"""Where an answer ends: stops of every kind together, and the fewest tokens."""

from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Capabilities, Lacking, Property, demand
from paged_conformance.server.answers import Choice
from paged_conformance.server.client import Client
from paged_conformance.server.compare import confirmed, said
from paged_conformance.server.probe import Target
from paged_conformance.server.requests import apis, requests


def _stopped(has: Capabilities) -> st.SearchStrategy[Any]:
    request = st.sampled_from(apis(has)).flatmap(
        lambda api: requests(has, api, logprobs=False, samples=False, whole=False)
    )
    include = st.booleans() if "include-stop" in has else st.just(False)
    kept = st.tuples(st.integers(0, 60), st.integers(1, 5))
    return st.fixed_dictionaries(
        {
            "request": request,
            "spans": st.lists(kept, min_size=1, max_size=4),
            "strangers": st.lists(st.sampled_from(["@@", "\u2603", "#!"]), max_size=2, unique=True),
            "include": include,
            "stream": st.booleans() if "any-streams" in has else st.just(False),
        }
    )


def check_strings(make: Target, example: Any) -> None:
    """Stops are cut out of the answer without stops, so where each occurs is known."""
    client, request = make(), example["request"]

    def check() -> None:
        body = request["body"] | {"max_tokens": max(8, request["body"]["max_tokens"])}
        free = client.ask(request | {"body": body}).first
        stops = _stops(free.text, example)
        more: dict[str, Any] = {"stop": stops}
        if example["include"]:
            more["include_stop_str_in_output"] = True
        stopping = request | {"body": body | more}
        choice = client.ask(stopping, stream=example["stream"], must=True).first
        again = client.ask(request | {"body": body}, must=True).first
        if free.text == again.text:
            _ends_by_string(free, choice, stops, example["include"], said(stopping))

    confirmed(check)


def _stops(text: str, example: Any) -> list[str]:
    """Up to four strings, the API's limit: pieces of the text, and some that are not in it."""
    found: list[str] = []
    for start, length in example["spans"]:
        piece = text[start % len(text) :][:length] if text else ""
        if piece.strip() and "\ufffd" not in piece and piece not in found:
            found.append(piece)
    found = (found + example["strangers"])[:4]
    if not found:
        raise Lacking("the answer has no text to stop at")
    return found


def _ends_by_string(
    free: Choice, choice: Choice, stops: list[str], include: bool, what: str
) -> None:
    text, met = choice.text, [stop for stop in stops if stop in free.text]
    seen = f"{free.text!r} without stops, {text!r} with {stops}, ends by {choice.finish!r}: {what}"
    if not met:
        demand(text == free.text, f"stops that do not occur change the text: {seen}")
        demand(choice.finish == free.finish, f"stops that do not occur change the end: {seen}")
        return
    ends = {stop: free.text.find(stop) + len(stop) for stop in met}
    demand(choice.finish == "stop", f"a stop string occurs and does not end the answer: {seen}")
    right = {free.text[: end if include else end - len(stop)] for stop, end in ends.items()}
    demand(text in right, f"the text does not end at a stop string: {seen}")
    if not include:
        leaked = [stop for stop in stops if stop in text]
        demand(not leaked, f"the stop string {leaked} is in the text: {seen}")


def _stopped_by_ids(has: Capabilities) -> st.SearchStrategy[Any]:
    request = st.sampled_from(apis(has)).flatmap(
        lambda api: requests(has, api, logprobs=False, samples=False, whole=False)
    )
    least = st.integers(0, 12) if "min-tokens" in has else st.just(0)
    return st.fixed_dictionaries(
        {
            "request": request,
            "places": st.lists(st.integers(0, 30), min_size=1, max_size=3),
            "least": least,
            "strings": st.booleans(),
        }
    )


def check_ids(make: Target, example: Any) -> None:
    """Stop token ids are taken out of the answer without stops."""
    client, request = make(), example["request"]

    def check() -> None:
        body = request["body"] | {"max_tokens": 16, "return_token_ids": True}
        free = client.ask(request | {"body": body}).first
        ids = free.token_ids or []
        if not ids:
            raise Lacking("no token ids came")
        stops = sorted({ids[place % len(ids)] for place in example["places"]})
        more: dict[str, Any] = {"stop_token_ids": stops}
        if example["least"]:
            more["min_tokens"] = example["least"]
        if example["strings"]:
            more["stop"] = ["\u2603"]
        stopping = request | {"body": body | more}
        choice = client.ask(stopping, must=True).first
        again = client.ask(request | {"body": body}, must=True).first
        if again.token_ids == ids:
            _ends_by_id(ids, choice, stops, example["least"], said(stopping))

    confirmed(check)


def _ends_by_id(ids: list[int], choice: Choice, stops: list[int], least: int, what: str) -> None:
    got = choice.token_ids or []
    seen = f"without stops {ids}, with {stops} {got}, which ends by {choice.finish!r}: {what}"
    first = min(place for place, token in enumerate(ids) if token in stops)
    early = [token for token in got[:-1] if token in stops]
    demand(not early, f"tokens came after a stop token: {seen}")
    if least:
        # What is drawn in place of a stop token that comes too early is the model's.
        is_told = got[-1:] != [] and got[-1] in stops
        count = len(got) + (not is_told)
        demand(count >= least or choice.finish != "stop", f"fewer tokens than {least}: {seen}")
        return
    demand(choice.finish == "stop", f"a stop token does not end the answer: {seen}")
    # Whether the stop token itself is among the answer's ids is the server's choice.
    demand(
        got in (ids[: first + 1], ids[:first]), f"it does not end at its first stop token: {seen}"
    )


def _least(has: Capabilities) -> st.SearchStrategy[Any]:
    request = st.sampled_from(apis(has)).flatmap(
        lambda api: requests(has, api, logprobs=False, samples=False, whole=False)
    )
    return st.fixed_dictionaries({"request": request, "least": st.integers(1, 12)})


def check_least(make: Target, example: Any) -> None:
    """At least so many tokens, at most the limit, by the usage."""
    client: Client = make()
    least = example["least"]
    body = example["request"]["body"] | {"min_tokens": least, "max_tokens": 16}
    request = example["request"] | {"body": body}
    answer = client.ask(request)
    usage = answer.usage or {}
    count = usage.get("completion_tokens")
    if count is not None:
        demand(least <= count <= 16, f"{count} tokens, of {least} to 16: {said(request)}")


PROPERTIES = (
    Property(
        "stop-strings",
        "An answer ends at the first stop string that occurs, before it or, if asked, behind it; "
        "one that does not occur changes nothing.",
        _stopped,
        check_strings,
        invariant="I50",
    ),
    Property(
        "stop-token-ids",
        "An answer ends at its first stop token, but has at least as many tokens as asked for.",
        _stopped_by_ids,
        check_ids,
        needs=("stop-token-ids", "token-ids"),
    ),
    Property(
        "least-tokens",
        "An answer has at least the tokens that are asked for, and at most its limit.",
        _least,
        check_least,
        needs=("min-tokens",),
    ),
)
