"""Properties of what a request gets: the same as alone, whatever else the engine does."""

from dataclasses import replace
from functools import partial
from typing import Any, cast

from hypothesis import strategies as st

from paged_conformance.drawing import Numbers, record, records
from paged_conformance.engine.alone import Result, alone, compare, results
from paged_conformance.engine.histories import (
    REQUEST,
    SETUP,
    examples,
    most_tokens,
    parameters,
    prompt,
    requests,
    setup,
    spelled,
)
from paged_conformance.engine.play import Play, play, prompt_of
from paged_conformance.engine.streams import Streams, add, drain
from paged_conformance.properties import Capabilities, Property, Refused

COMPANY = Property(
    name="greedy-in-company",
    sentence="A greedy request gets the tokens and log-probabilities that it gets alone.",
    invariant="I36",
    examples=partial(examples, asks=("stop_ids",), most=6),
    check=play,
)

WARM = Property(
    name="warm-as-cold",
    sentence="Cached blocks change no result: of this request, of one that begins alike, or of one "
    "that goes on behind an earlier output.",
    invariant="I34",
    examples=partial(
        examples,
        small=("cache", "pool"),
        words=("add", "add", "add", "step", "step", "drain", "flush"),
        length=18,
    ),
    check=play,
    needs=("prefix_cache",),
)

CROWDED = Property(
    name="crowded-pool",
    sentence="A pool so small that requests wait or are preempted changes no result, and all end.",
    invariant="I31",
    examples=partial(
        examples,
        asks=("stop_ids", "seeds"),
        small=("pool", "cache"),
        words=("add", "add", "add", "step", "abort"),
        most=6,
        length=18,
    ),
    check=play,
    needs=("pools",),
)

BUDGETS = Property(
    name="any-budget",
    sentence="How many tokens and sequences a step may have changes no result.",
    invariant="I35",
    examples=partial(
        examples, small=("budget", "cache"), words=("add", "add", "add", "add", "step"), most=6
    ),
    check=play,
    needs=("budgets",),
)

SPECULATION = Property(
    name="any-guesses",
    sentence="Guessed tokens change no result.",
    examples=partial(
        examples, asks=("stop_ids", "seeds", "logprobs"), small=("speculation", "cache")
    ),
    check=play,
    needs=("speculation",),
)

SESSIONS = Property(
    name="later-sessions",
    sentence="A session gives what the first one would, whatever the ones before it did.",
    examples=partial(
        examples,
        asks=("seeds",),
        small=("cache", "pool"),
        words=("add", "add", "add", "step", "rest", "rest", "abort"),
        most=4,
    ),
    check=play,
    needs=("sessions",),
)

PRIORITIES = Property(
    name="priorities-change-nothing",
    sentence="A priority changes when a request is served, and not what it gets.",
    invariant="I24",
    examples=partial(examples, asks=("priorities", "stop_ids"), small=("pool", "budget"), most=6),
    check=play,
    needs=("priorities",),
)

ADAPTERS = Property(
    name="adapters-apart",
    sentence="A request gets what its adapter gives alone, beside and behind those of others.",
    invariant="I29",
    examples=partial(
        examples, asks=("adapters",), small=("cache", "pool"), words=("add", "add", "step", "drain")
    ),
    check=play,
    needs=("adapters",),
)

BEAMS = Property(
    name="beams-in-company",
    sentence="A beam search finds in company what it finds alone.",
    invariant="I38",
    examples=partial(examples, asks=("beams",), small=("pool", "cache"), most=3),
    check=play,
    needs=("beams",),
)


def orders(has: Capabilities) -> st.SearchStrategy[dict[str, Any]]:
    def spell(first: bytes, drawn: list[bytes]) -> dict[str, Any]:
        numbers = Numbers(first)
        asked = requests(drawn[: 1 + numbers.below(len(drawn))], has, ("seeds",))
        places = range(len(asked))
        return {
            "setup": setup(numbers, has, ("cache", "budget")),
            "mode": {"draws": True, "samples": 1} if "modes" in has else {},
            "requests": asked,
            "orders": [sorted(places, key=lambda _: numbers.below(256)) for _ in range(2)],
            "pause": numbers.among([0, 1, 3]),
        }

    return st.builds(spell, record(2 * SETUP), records(5, REQUEST))


def check_orders(make: Any, example: Any) -> None:
    """The same requests twice on one engine, in two orders, at two paces."""
    game = Play(make, example)
    for order, pause in zip(example["orders"], [0, example["pause"]], strict=True):
        for place in order:
            game.add(place)
            game.step(pause)
        game.drain()


ORDERS = Property(
    name="any-order",
    sentence="The order in which requests arrive changes none of their results.",
    invariant="I32",
    examples=orders,
    check=check_orders,
)


def continuations(has: Capabilities) -> st.SearchStrategy[dict[str, Any]]:
    params: dict[str, Any] = {"max_tokens": most_tokens(has)}
    if "eos" in has:
        params["ignore_eos"] = True

    def spell(drawn: Numbers) -> dict[str, Any]:
        return {
            "setup": setup(drawn, has, ("cache", "budget")),
            "mode": {"draws": False, "samples": 1} if "modes" in has else {},
            "prompt": prompt(drawn, has, 0),
            "params": params,
            "cuts": drawn.several(params["max_tokens"], 4, least=1),
            "together": drawn.yes(),
        }

    return spelled(spell, SETUP + REQUEST)


def check_continuations(make: Any, example: Any) -> None:
    """Greedy, with the first k tokens of its output behind the prompt: the rest is the same."""
    params = example["params"]
    tokens = prompt_of(example["prompt"], make.sizes, [])
    whole = _plain(make, example, tokens)
    if whole is None:
        return
    count = len(whole.token_ids)
    cuts = {f"cut{number}": cut for number, cut in enumerate(example["cuts"]) if cut < count}
    asked = {
        name: (tokens + whole.token_ids[:cut], params | {"max_tokens": count - cut})
        for name, cut in cuts.items()
    }
    for name, got in _served(make, example, asked, together=example["together"]).items():
        cut = cuts[name]
        rest = replace(
            whole,
            token_ids=whole.token_ids[cut:],
            text=None,
            logprobs=whole.logprobs and whole.logprobs[cut:],
            top=whole.top and whole.top[cut:],
        )
        compare(make, name, rest, got[0])


def _plain(make: Any, example: Any, tokens: list[int]) -> Result | None:
    """What this prompt gets alone, with the example's parameters; None if it is refused."""
    try:
        [result] = alone(make, example["mode"], tokens, example["params"])
    except Refused:
        return None
    return cast(Result, result)


def _served(
    make: Any, example: Any, asked: dict[str, tuple[list[int], Any]], *, together: bool
) -> dict[str, list[Result]]:
    """What each gets that is accepted of these prompts with their parameters, on one engine."""
    engine, streams = make(**example["setup"], **example["mode"]), Streams(make)
    accepted = []
    for name, (tokens, params) in asked.items():
        if add(engine, streams, name, tokens, params):
            accepted.append(name)
        if not together:
            drain(engine, streams)
    drain(engine, streams)
    return {name: results(streams.ended[name]) for name in accepted}


CONTINUATIONS = Property(
    name="goes-on-the-same",
    sentence="A prompt with the first tokens of its own greedy output goes on with the others.",
    invariant="I39",
    examples=continuations,
    check=check_continuations,
)


def _options(has: Capabilities) -> dict[str, dict[str, Any]]:
    """What can be asked for and does nothing, by name."""
    options: dict[str, dict[str, Any]] = {"nothing": {}}
    if "filters" in has and "draws" in has:
        options["only the best"] = {"temperature": 0.9, "top_k": 1}
        options["a small nucleus"] = {"temperature": 0.9, "top_p": 1e-6}
    if "penalties" in has:
        none = {"presence_penalty": 0.0, "frequency_penalty": 0.0}
        options["no penalties"] = {"repetition_penalty": 1.0, **none}
    if "bias" in has:
        options["no bias"] = {"logit_bias": {"3": 0.0}}
    if "min_tokens" in has:
        options["at least none"] = {"min_tokens": 0}
    if "stops" in has:
        options["a stop that never comes"] = {"stop": ["\u2603 no such text \u2603"]}
    if "logprobs" in has:
        options["log-probabilities"] = {"logprobs": 5}
    if "samples" in has and "greedy_samples" in has and "modes" not in has:
        options["samples"] = {"n": 2}
    if "kinds" in has:
        options |= {kind: {"kind": kind} for kind in ("delta", "final")}
    return options


def neutral(has: Capabilities) -> st.SearchStrategy[dict[str, Any]]:
    options = _options(has)
    names = sorted(options)

    def spell(drawn: Numbers) -> dict[str, Any]:
        return {
            "setup": setup(drawn, has, ("cache",)),
            "mode": {"draws": "draws" in has, "samples": 1} if "modes" in has else {},
            "prompt": prompt(drawn, has, 0),
            "params": parameters(drawn, has, ()),
            "options": {names[i]: options[names[i]] for i in drawn.several(len(names), 4, least=1)},
        }

    return spelled(spell, SETUP + REQUEST)


def check_neutral(make: Any, example: Any) -> None:
    """All of them together, each compared with the plain request alone."""
    tokens = prompt_of(example["prompt"], make.sizes, [])
    plain = _plain(make, example, tokens)
    if plain is None:
        return
    asked = {
        name: (tokens, example["params"] | option) for name, option in example["options"].items()
    }
    for name, samples in _served(make, example, asked, together=True).items():
        for got in samples:
            compare(make, f"a greedy request with {name}", plain, got)


NEUTRAL = Property(
    name="options-that-do-nothing",
    sentence="An option at the value at which it does nothing changes nothing, beside others too.",
    invariant="I44",
    examples=neutral,
    check=check_neutral,
)
