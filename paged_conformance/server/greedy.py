"""Greedy answers depend on their prompt alone: not on company, a cache, or a limit."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Broken, Capabilities, Lacking, Property, demand
from paged_conformance.server.answers import Answer
from paged_conformance.server.client import Client
from paged_conformance.server.compare import confirmed, part, said
from paged_conformance.server.crowd import together
from paged_conformance.server.measured import count
from paged_conformance.server.probe import Target
from paged_conformance.server.requests import PREFIX, apis, requests, texts


def same(one: Answer, other: Answer, what: str) -> None:
    """All choices of two greedy answers, choice by choice."""
    demand(
        one.choices.keys() == other.choices.keys(),
        f"{what}: choices {sorted(one.choices)} and {sorted(other.choices)}",
    )
    for index, choice in one.choices.items():
        part(choice, other.choices[index], f"{what}, choice {index}")


def _crowds(has: Capabilities) -> st.SearchStrategy[Any]:
    clients = has.sizes.get("clients", 6)
    one = st.sampled_from(apis(has, "logprobs")).flatmap(
        lambda api: requests(has, api, logprobs=True, whole=False)
    )
    others = st.sampled_from(apis(has)).flatmap(lambda api: requests(has, api))
    return st.fixed_dictionaries(
        {
            "requests": st.lists(one, min_size=1, max_size=max(1, clients // 2)),
            "company": st.lists(others, max_size=clients - clients // 2),
            "first": st.sampled_from(["alone", "in company"]),
        }
    )


def check_company(make: Target, example: Any) -> None:
    """Each request alone, and all at once; which comes first is the example's."""
    client, mine = make(), example["requests"]
    alone: list[Answer] = []
    if example["first"] == "alone":
        alone = [client.ask(request) for request in mine]
    jobs: list[Callable[[], Any]] = [
        partial(client.ask, request, must=bool(alone)) for request in mine
    ]
    jobs += [partial(_try, client, request) for request in example["company"]]
    crowd = together(jobs, make.seconds_left())
    alone = alone or [client.ask(request) for request in mine]
    for request, one, other in zip(mine, alone, crowd, strict=False):
        same(one, other, f"alone and in company of {len(jobs) - 1}: {said(request)}")


def _try(client: Client, request: Any) -> None:
    try:
        client.ask(request)
    except Lacking:
        count("requests of company that were refused")


def _warmed(has: Capabilities) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "api": st.sampled_from(apis(has, "logprobs")),
            "salt": st.integers(0, 10**9),  # what nobody has asked before
            "length": st.integers(0, len(PREFIX)),
            "ends": st.lists(texts(), min_size=1, max_size=4),
            "tokens": st.integers(1, has.sizes.get("tokens", 16)),
        }
    )


def check_cache(make: Target, example: Any) -> None:
    """A prompt that nobody asked before, again, with other ends, and once more."""
    client = make()
    front = " ".join([str(example["salt"]), *PREFIX[: example["length"]]])
    asked = [_of_text(example, f"{front} {end}") for end in example["ends"]]
    cold = [client.ask(request) for request in asked]
    longer = [
        _of_text(example, request["body"].get("prompt", "") + answer.first.text)
        for request, answer in zip(asked, cold, strict=True)
        if example["api"] == "completions"
    ]
    for request in longer:
        client.ask(request)
    for request, one in zip(asked, cold, strict=True):
        warm = client.ask(request, must=True)
        same(one, warm, f"with a cold and a warm cache: {said(request)}")


def _of_text(example: Any, text: str) -> dict[str, Any]:
    body: dict[str, Any] = {"max_tokens": example["tokens"], "temperature": 0}
    if example["api"] == "chat":
        message = {"role": "user", "content": text}
        return {
            "api": "chat",
            "body": body | {"messages": [message], "logprobs": True, "top_logprobs": 4},
        }
    return {"api": "completions", "body": body | {"prompt": text, "logprobs": 4}}


def _limited(has: Capabilities) -> st.SearchStrategy[Any]:
    one = st.sampled_from(apis(has, "logprobs")).flatmap(
        lambda api: requests(has, api, logprobs=True, samples=False, whole=False)
    )
    return st.fixed_dictionaries({"request": one, "cut": st.integers(1, 16)})


def check_limit(make: Target, example: Any) -> None:
    """The answer of a smaller limit is the beginning of the longer one."""
    client, request = make(), example["request"]
    long = client.ask(request).first
    cut = min(example["cut"], request["body"]["max_tokens"])
    shorter = request | {"body": request["body"] | {"max_tokens": cut}}
    short = client.ask(shorter, must=True).first
    what = f"limits of {request['body']['max_tokens']} and {cut} tokens: {said(request)}"
    if part(short, long, what) is not None:
        return
    if len(long.tokens) > cut:
        demand(len(short.tokens) == cut, f"{what}: {len(short.tokens)} tokens: {short.tokens}")
        demand(short.finish == "length", f"{what}: the shorter one's end is {short.finish!r}")
    fits = long.text.startswith(short.text.rstrip("\ufffd"))
    demand(fits, f"{what}: the text {short.text!r} does not begin {long.text!r}")


def _seeded(has: Capabilities) -> st.SearchStrategy[Any]:
    one = st.sampled_from(apis(has)).flatmap(
        lambda api: requests(has, api, samples=False, whole=False)
    )
    return st.fixed_dictionaries({"request": one, "seed": st.integers(0, 2**31 - 1)})


def check_seeds(make: Target, example: Any) -> None:
    """The same seed four times; the first may have found a cold cache."""
    client, request = make(), example["request"]
    seeded = {"temperature": 1.0, "seed": example["seed"], "max_tokens": 16}
    request = request | {"body": request["body"] | seeded}
    found = [client.ask(request, must=turn > 0).first.text for turn in range(4)]
    demand(
        len(set(found[1:])) < 3, f"one seed gives other texts each time: {said(request)}: {found}"
    )
    count("seeded answers", 3)
    count("seeded answers that repeat", 4 - len(set(found)))


def _sampled(has: Capabilities) -> st.SearchStrategy[Any]:
    one = st.sampled_from(apis(has, "n", "logprobs")).flatmap(
        lambda api: requests(has, api, logprobs=True, samples=False, whole=False)
    )
    return st.fixed_dictionaries(
        {"request": one, "n": st.integers(2, 5), "seed": st.integers(0, 99)}
    )


def check_samples(make: Target, example: Any) -> None:
    """Samples that are all equal, though their text is one in many millions."""
    client, request = make(), example["request"]
    more: dict[str, Any] = {"temperature": 1.0, "n": example["n"], "max_tokens": 24}
    if "seeds" in make.capabilities:
        more["seed"] = example["seed"]
    request = request | {"body": request["body"] | more}

    def check() -> None:
        answer = client.ask(request)
        choices = [answer.choices[index] for index in sorted(answer.choices)]
        indexes = sorted(answer.choices)
        demand(indexes == list(range(example["n"])), f"choices {indexes}: {said(request)}")
        chance = sum(number or 0.0 for number in choices[0].logprobs)
        equal = all(one.tokens == choices[0].tokens for one in choices)
        if chance < -25 and equal:
            raise Broken(f"all samples are {choices[0].text!r}: {said(request)}")

    confirmed(check)


PROPERTIES = (
    Property(
        "greedy-in-company",
        "A greedy answer is the same alone and with other requests at once, but for ties.",
        _crowds,
        check_company,
        invariant="I36",
        needs=("any-logprobs",),
    ),
    Property(
        "greedy-warm-cache",
        "A greedy answer is the same with a cold and a warm prefix cache, but for ties.",
        _warmed,
        check_cache,
        invariant="I34",
        needs=("any-logprobs",),
    ),
    Property(
        "smaller-limit",
        "A smaller limit of tokens gives the beginning of the same greedy answer.",
        _limited,
        check_limit,
        needs=("any-logprobs",),
    ),
    Property(
        "seeds-repeat",
        "The same seed gives the same answer again, when nothing else has changed.",
        _seeded,
        check_seeds,
        needs=("seeds",),
    ),
    Property(
        "samples-differ",
        "The samples of a request are drawn apart from each other, each with an index of its own.",
        _sampled,
        check_samples,
        invariant="I37",
        needs=("any-logprobs", "any-n"),
    ),
)
