"""Spells requests and histories out of bytes, for what a target can do."""

from collections.abc import Callable, Collection
from typing import Any

from hypothesis import strategies as st

from paged_conformance.drawing import Numbers, record, records
from paged_conformance.engine.play import WRONG, longest_prompt
from paged_conformance.properties import Capabilities

DRAWN = ("draws", "seeds")
LONGEST = 12  # tokens of an output, unless a target's `max_tokens` says otherwise
SETUP, REQUEST, OPERATION = 12, 40, 5  # bytes of their records
HEAT = [0.7, 1.0, 1.5]


def spelled(spell: Callable[[Numbers], dict[str, Any]], size: int) -> st.SearchStrategy[Any]:
    """Examples of one record."""
    return record(size).map(lambda drawn: spell(Numbers(drawn)))


def most_tokens(has: Capabilities) -> int:
    """Tokens of the longest output."""
    return has.sizes.get("max_tokens", LONGEST)


def _block(has: Capabilities) -> int:
    return has.sizes.get("block_size", 16)


def prompt(drawn: Numbers, has: Capabilities, num_before: int) -> dict[str, Any]:
    """Prompts of lengths around the ends of blocks; many begin alike, or go on behind an output."""
    behind = num_before > 0 and drawn.below(4) == 3
    if behind:
        start = {"of": drawn.below(num_before), "cut": drawn.below(LONGEST + 1)}
    else:
        block = _block(has)
        blocks = drawn.below(4 if block < 64 else 2)
        length = max(0, blocks * block + drawn.among([0, 0, 1, -1, 2, block // 2]))
        room = has.sizes["max_len"] - most_tokens(has) - 4
        start = {"stem": drawn.below(3), "length": min(length, max(0, room))}
    return {**start, "tail": drawn.several(has.sizes["vocabulary"], 3)}


def parameters(drawn: Numbers, has: Capabilities, asks: Collection[str]) -> dict[str, Any]:
    """Parameters of one request: those that `asks` names, where the target has them."""
    wanted = {word for word in asks if word in has}
    longest = most_tokens(has)
    params: dict[str, Any] = {"max_tokens": drawn.among([1, 2, 5, longest, longest])}
    if "beams" in wanted:
        return params | {"beams": 1 + drawn.below(3)}
    if "eos" in has:
        params["ignore_eos"] = drawn.yes()
    if "seeds" in wanted and drawn.yes():
        params |= {"temperature": drawn.among(HEAT), "seed": drawn.among([0, 1, 42, 2**31 - 1])}
    elif "draws" in wanted and drawn.below(4) == 3:
        params["temperature"] = drawn.among(HEAT)
    if params.get("temperature") and "filters" in wanted:
        params["top_k"] = drawn.among([-1, 1, 3])
        params["top_p"] = drawn.among([1.0, 0.9, 0.3])
    if "samples" in wanted and (params.get("temperature") or "greedy_samples" in has):
        params["n"] = 1 + drawn.below(3)
    if "min_tokens" in wanted:
        params["min_tokens"] = drawn.below(params["max_tokens"] + 1)
    if "logprobs" in wanted and drawn.yes():
        params["logprobs"] = drawn.among([1, 2, 5])
    if "penalties" in wanted and drawn.yes():
        params["repetition_penalty"] = drawn.among([1.0, 0.5, 1.5])
        params["presence_penalty"] = drawn.among([0.0, -1.0, 1.5])
        params["frequency_penalty"] = drawn.among([0.0, -0.5, 1.0])
    if "bias" in wanted and drawn.yes():
        token = drawn.below(has.sizes["vocabulary"])
        params["logit_bias"] = {str(token): drawn.among([-100.0, 2.0, 100.0])}
    if "priorities" in wanted:
        params["priority"] = drawn.among([0, -1, 1, 2])
    if "kinds" in wanted:
        params["kind"] = drawn.among(["cumulative", "delta", "final"])
    if "include_stop" in wanted:
        params["include_stop"] = drawn.yes()
    if "adapters" in wanted:
        params["adapter"] = drawn.below(has.sizes.get("adapters", 1) + 1)
    return params


def request(
    drawn: Numbers, has: Capabilities, asks: Collection[str], num_before: int
) -> dict[str, Any]:
    """A request, and where stops end it."""
    one: dict[str, Any] = {
        "prompt": prompt(drawn, has, num_before),
        "params": parameters(drawn, has, asks),
    }
    ends: dict[str, Any] = {}
    if "stop_ids" in asks and "stop_ids" in has and drawn.yes():
        ends["tokens"] = drawn.several(LONGEST, 2, least=1)
    if "stops" in asks and "stops" in has and drawn.yes():
        ends["texts"] = cuts(drawn, 2, least=1)
    return one | ({"ends": ends} if ends else {})


def requests(drawn: list[bytes], has: Capabilities, asks: Collection[str]) -> list[dict[str, Any]]:
    """One of each record."""
    return [request(Numbers(one), has, asks, place) for place, one in enumerate(drawn)]


def cuts(drawn: Numbers, most: int, least: int = 0) -> list[list[int]]:
    """Parts of a text: where each begins, and its length."""
    return [[start, 1 + drawn.below(5)] for start in drawn.several(41, most, least)]


def operation(drawn: Numbers, num_requests: int, words: Collection[str]) -> list[Any]:
    """One operation; none if the record is zeros."""
    word = drawn.among(["", *words])
    match word:
        case "add":
            return [word, drawn.below(num_requests)]
        case "step":
            return [word, drawn.among([1, 1, 1, 2, 3, 5])]
        case "abort":
            return [word, sorted(set(drawn.several(num_requests, 3, least=1)))]
        case "wrong":
            return [word, drawn.among(sorted(WRONG))]
    return [word] if word else []


def setup(
    drawn: Numbers,
    has: Capabilities,
    asks: Collection[str],
    requests: Collection[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Arguments of `make`; the smallest pool has room for the longest of the requests."""
    given: dict[str, Any] = {}
    if "pools" in has:
        block = has.sizes.get("min_block", _block(has))
        sizes = [block]
        while block * 2 <= has.sizes.get("max_block", block):
            block *= 2
            sizes.append(block)
        given["block_size"] = drawn.among(sizes)
        if "pool" in asks:
            given["tokens"] = _room(drawn, has, given["block_size"], requests)
    if "budgets" in has and "budget" in asks:
        given["seqs"] = 1 + drawn.below(4)
        lowest = max(given["seqs"], has.sizes.get("min_budget", 1))
        given["batch_tokens"] = lowest + drawn.among([0, 1, 3, 7, 16, 40])
    if "prefix_cache" in has and "cache" in asks:
        given["prefix_cache"] = drawn.among([True, True, False])
    if "speculation" in has and "speculation" in asks:
        given["speculation"] = drawn.below(4)
    return given


def _room(
    drawn: Numbers, has: Capabilities, block: int, requests: Collection[dict[str, Any]]
) -> int:
    """Tokens of a pool that the longest request nearly fills: others wait, and evict each other."""
    lengths: list[int] = []
    outputs: list[int] = []
    for one in requests:
        spec, params = one["prompt"], one["params"]
        before = lengths[spec["of"]] + spec["cut"] if "of" in spec else spec["length"]
        lengths.append(min(before + len(spec["tail"]), longest_prompt(has.sizes)))
        copies = params.get("n", 1) * params.get("beams", 1)
        outputs.append(copies * (params["max_tokens"] + block))
    longest = max(map(sum, zip(lengths, outputs, strict=True)))
    return -(-(longest + drawn.below(1 + longest // 2)) // block) * block


def examples(
    has: Capabilities,
    *,
    asks: Collection[str] = (),
    small: Collection[str] = (),
    words: Collection[str] = ("add", "add", "step"),
    most: int = 5,
    length: int = 16,
) -> st.SearchStrategy[dict[str, Any]]:
    """Whole examples; see `play`.

    Args:
        asks: Parameters that requests may have.
        small: What may be small: "pool", "budget"; or on and off: "cache", "speculation".
        words: Operations, as often as they are likely.
    """
    usable = [word for word in words if _usable(word, has)]

    def spell(first: bytes, drawn: list[bytes], operations: list[bytes]) -> dict[str, Any]:
        numbers = Numbers(first)
        count = 1 + numbers.below(most)
        history = [operation(Numbers(one), count, usable) for one in operations]
        named = [place for word, *rest in filter(None, history) for place in _places(word, rest)]
        asked = requests(drawn[: max(named, default=0) + 1], has, asks)
        # What others say for each request, some targets must know beforehand
        mode: dict[str, Any] = {}
        if "modes" in has:
            mode = {"draws": any(word in asks and word in has for word in DRAWN), "samples": 1}
            if "samples" in asks and "samples" in has:
                mode["samples"] = 1 + numbers.below(3)
                for one in asked:
                    one["params"]["n"] = mode["samples"]
        return {
            "setup": setup(numbers, has, small, asked),
            "mode": mode,
            "requests": asked,
            "history": [one for one in history if one],
        }

    return st.builds(spell, record(SETUP), records(most, REQUEST), records(length, OPERATION))


def _places(word: str, about: list[Any]) -> list[int]:
    """The requests that an operation names."""
    return about if word == "add" else about[0] if word == "abort" else []


def _usable(word: str, has: Capabilities) -> bool:
    needs = {"rest": "sessions", "flush": "prefix_cache"}
    return word not in needs or needs[word] in has
