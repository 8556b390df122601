"""Properties of the ends of outputs, and of how they are told."""

from functools import partial
from typing import Any

from hypothesis import strategies as st

from paged_conformance.drawing import Numbers
from paged_conformance.engine.alone import Result, alone, results
from paged_conformance.engine.histories import (
    LONGEST,
    REQUEST,
    cuts,
    examples,
    most_tokens,
    parameters,
    prompt,
    spelled,
)
from paged_conformance.engine.play import Play, free_of_ends, play
from paged_conformance.engine.streams import ends
from paged_conformance.properties import Capabilities, Property, demand

STOPS = Property(
    name="stops-of-every-kind",
    sentence="Stop tokens, stop strings, an end token and a length, together and in company, end "
    "each output where they end it alone, and its text shows no stop string.",
    invariant="I50",
    examples=partial(
        examples, asks=("stop_ids", "stops", "include_stop", "min_tokens", "kinds", "seeds"), most=6
    ),
    check=play,
)

STREAMS = Property(
    name="streams-add-up",
    sentence="What is told of an output is never taken back, and parts add up to the whole.",
    invariant="I50",
    examples=partial(
        examples, asks=("kinds", "logprobs", "samples", "seeds"), words=("add", "add", "step")
    ),
    check=play,
)

LOGPROBS = Property(
    name="logprobs-are-probabilities",
    sentence="Log-probabilities are those that the request gets alone, one list for each token, "
    "in order, and of no more than probability 1 together.",
    examples=partial(examples, asks=("logprobs", "bias", "penalties", "stop_ids"), most=4),
    check=play,
    needs=("logprobs",),
)


def first_ends(has: Capabilities) -> st.SearchStrategy[dict[str, Any]]:
    def spell(drawn: Numbers) -> dict[str, Any]:
        params = parameters(drawn, has, ("include_stop",)) | {"max_tokens": most_tokens(has)}
        least = drawn.below(5) if "min_tokens" in has else 0
        if least:
            params["min_tokens"] = least
        ends: dict[str, Any] = {"tokens": drawn.several(LONGEST, 2) if "stop_ids" in has else []}
        if "stops" in has and not least:
            ends["texts"] = cuts(drawn, 3)
        return {
            "mode": {"draws": False, "samples": 1} if "modes" in has else {},
            "requests": [{"prompt": prompt(drawn, has, 0), "params": params, "ends": ends}],
        }

    return spelled(spell, REQUEST)


def check_first_end(make: Any, example: Any) -> None:
    """With the output that only a length ends at hand, it is known where others must end it."""
    game = Play(make, example)
    if game.requests[0] is None:
        return
    prompt, params, expected = game.requests[0]
    [free] = alone(make, game.mode, prompt, free_of_ends(params, game.capabilities))
    stopping = ends(params, game.sizes)
    forbidden = stopping | {game.sizes.get("eos", -1)}  # where it is ignored, engines differ
    if any(token in forbidden for token in free.token_ids[: params.get("min_tokens", 0)]):
        return  # the end tokens were forbidden there, so that others came
    _check_tokens(params, stopping, free, expected[0])
    if params.get("stop") and free.text is not None:
        _check_text(params, free, expected[0])


def _check_tokens(params: dict[str, Any], stopping: set[int], free: Result, got: Result) -> None:
    count = len(got.token_ids)
    demand(
        got.token_ids == free.token_ids[:count],
        f"{got.token_ids}, and without the stops {free.token_ids}",
    )
    first = [place for place, token in enumerate(free.token_ids) if token in stopping]
    if first and not params.get("stop"):
        # Some engines keep the token that ends an output to themselves
        demand(
            count in (first[0], first[0] + 1) and got.finish_reason == "stop",
            f"{got.token_ids} ({got.finish_reason}): token {first[0]} of {free.token_ids} ends it",
        )
    if not first and not params.get("stop"):
        demand(count == len(free.token_ids), f"nothing ended {got.token_ids} of {free.token_ids}")


def _check_text(params: dict[str, Any], free: Result, got: Result) -> None:
    assert free.text is not None and got.text is not None
    own = free.text.removesuffix("\ufffd")
    shown = got.text.removesuffix("\ufffd")
    demand(own.startswith(shown), f"the text {shown!r} is no beginning of {own!r}")
    if params.get("include_stop"):
        return
    for stop in params["stop"]:
        demand(stop not in got.text, f"the text {got.text!r} has the stop string {stop!r}")


FIRST_END = Property(
    name="ends-at-the-first-stop",
    sentence="The output is the one without stops, up to the first token that ends it; its text is "
    "a beginning of that text.",
    examples=first_ends,
    check=check_first_end,
)


def lengths(has: Capabilities) -> st.SearchStrategy[dict[str, Any]]:
    longest = has.sizes["max_len"]

    def spell(drawn: Numbers) -> dict[str, Any]:
        missing = drawn.several(7, 3, least=1)
        return {
            "mode": {"draws": False, "samples": 1} if "modes" in has else {},
            "lengths": [[max(1, longest - few), 1 + drawn.below(8)] for few in missing],
            "eos": "eos" in has,
        }

    return spelled(spell, 8)


def check_lengths(make: Any, example: Any) -> None:
    """Prompts that nearly fill the longest sequence: they are refused, or end at its end."""
    game = Play(make, example | {"requests": []})
    longest, size = game.sizes["max_len"], game.sizes["vocabulary"]
    for number, (length, max_tokens) in enumerate(example["lengths"]):
        prompt = [(3 * i + number) % size for i in range(length)]
        params = {"max_tokens": max_tokens} | ({"ignore_eos": True} if example["eos"] else {})
        game.requests.append((prompt, params, []))
        game.add(number)
    accepted = dict(game.streams.live)
    game.names.clear()
    game.drain()
    for name, request in accepted.items():
        one = results(request.samples)[0]
        room = longest - len(request.prompt)
        full = (
            min(request.params["max_tokens"], room),
            min(request.params["max_tokens"], room + 1),
        )
        demand(
            one.finish_reason == "stop" or len(one.token_ids) in full,
            f"{name}: {len(one.token_ids)} tokens behind a prompt of {len(request.prompt)}, of "
            f"{request.params['max_tokens']} with {longest} in all",
        )


LENGTHS = Property(
    name="ends-at-its-length",
    sentence="An output has max_tokens tokens, or as many as fit, or its request is refused.",
    examples=lengths,
    check=check_lengths,
    needs=("long_prompts",),
)
