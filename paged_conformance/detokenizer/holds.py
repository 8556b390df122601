"""The properties of a detokenizer."""

import copy
from collections.abc import Collection
from typing import Any

from paged_conformance.detokenizer.texts import (
    Expected,
    examples,
    joined,
    pieces,
    special_of,
    steps,
)
from paged_conformance.properties import Property, demand
from reference.text import shown


def _words(make: Any) -> Collection[str]:
    words: Collection[str] = getattr(make, "capabilities", ())
    return words


def _open(make: Any, example: dict[str, Any]) -> Any:
    kind = example["kind"]
    target = make(kind=kind, pieces=list(pieces(kind)), special=sorted(special_of(kind)))
    names = ("prompt", "stop", "include_stop", "min_tokens", "skip_special_tokens")
    target.open(**{name: example[name] for name in names})
    return target


def _stream(make: Any, example: dict[str, Any]) -> tuple[list[str], str | None, int]:
    """The pieces, the stop string, and how many tokens were added."""
    target, shows, added = _open(make, example), [], 0
    for tokens in steps(example):
        added += len(tokens)
        last = example["ends"] and added == len(example["tokens"])
        told = target.add(tokens=tokens, ends=last)
        shows.append(told["text"])
        if told["stop"] is not None:
            return [*shows, target.finish()], told["stop"], added
    return [*shows, target.finish()], None, added


def _whole(make: Any, example: dict[str, Any]) -> None:
    """Pieces joined are the text; it ends at the first call that completes a stop string."""
    words = _words(make)
    exact = "unicode" in words
    shows, stop, added = _stream(make, example)
    text, want = joined(shows, exact), Expected(example)
    before = 0
    for tokens in steps(example):
        found = want.stopped(before, before + len(tokens))
        before += len(tokens)
        if found:
            _ended(example, words, found, want, (text, stop, added == before))
            return
    demand(stop is None, f"stop string {stop!r} was found; the output is {want.whole!r}")
    whole = joined([want.whole], exact)
    certain = joined([want.texts[-1]], exact)
    full = text == whole or ("flush" not in words and _lacks_an_end(text, whole, certain))
    demand(full, f"the pieces are {shows}, the text of the output is {want.whole!r}")


def _lacks_an_end(text: str, whole: str, certain: str) -> bool:
    """A character that is unfinished at the end may be left out, with bad bytes before it."""
    return text == certain or text == whole.rstrip("\ufffd")


def _ended(
    example: dict[str, Any],
    words: Collection[str],
    found: dict[str, str],
    want: Expected,
    seen: tuple[str, str | None, bool],
) -> None:
    text, stop, in_time = seen
    demand(
        in_time and stop is not None, f"one of {sorted(found)} stops the output: {text!r} goes on"
    )
    first = want.first()
    if "first_stop" in words and first is not None:
        demand(stop == first, f"{first!r} is complete first, the output was stopped by {stop!r}")
    demand(stop in found, f"the output was stopped by {stop!r}; it has {sorted(found)}")
    assert stop is not None
    right = joined([found[stop]], "unicode" in words)
    demand(text == right, f"the text is {text!r}; {stop!r} ends it at {right!r}")


def _never_taken_back(make: Any, example: dict[str, Any]) -> None:
    """What is shown after each step begins the text that certain tokens have."""
    words = _words(make)
    target, text, added = _open(make, example), "", 0
    want = Expected(example)
    for tokens in steps(example):
        added += len(tokens)
        last = example["ends"] and added == len(example["tokens"])
        told = target.add(tokens=tokens, ends=last)
        text += told["text"]
        if told["stop"] is not None:
            return
        certain = joined([want.texts[added]], "unicode" in words)
        now = joined([text], "unicode" in words)
        demand(
            certain.startswith(now),
            f"after {added} tokens {now!r} is shown; certain is {certain!r}",
        )


def _cuts(make: Any, example: dict[str, Any]) -> None:
    """However the tokens are cut into calls, the text is the same."""
    if example["stop"] and "first_stop" not in _words(make):
        example = {**example, "stop": []}
    whole = copy.deepcopy(example)
    whole["cuts"] = [len(example["tokens"])]
    single = {**example, "cuts": []}
    texts = [
        (joined(shows, True), stop)
        for shows, stop, _ in (_stream(make, one) for one in (example, whole, single))
    ]
    demand(
        texts[0] == texts[1] == texts[2],
        f"cut at {example['cuts']}, whole, and one by one: {texts[0]}, {texts[1]} and {texts[2]}",
    )


def _eager(make: Any, example: dict[str, Any]) -> None:
    """Text is shown with the token that makes it certain."""
    example = {**example, "include_stop": False}
    target, text, added = _open(make, example), "", 0
    want = Expected(example)
    for tokens in steps(example):
        added += len(tokens)
        last = example["ends"] and added == len(example["tokens"])
        told = target.add(tokens=tokens, ends=last)
        text += told["text"]
        if told["stop"] is not None or last:
            return
        sure = shown(want.texts[added], example["stop"])
        demand(text == sure, f"after {added} tokens {text!r} is shown; {sure!r} is certain")


PROPERTIES: tuple[Property, ...] = (
    Property(
        "whole-text",
        "The streamed pieces, joined, are the text of the output, up to its stop string.",
        examples,
        _whole,
        "I50",
    ),
    Property(
        "never-taken-back",
        "What is shown is the beginning of what no further token can change.",
        examples,
        _never_taken_back,
        "I50",
    ),
    Property(
        "equal-at-every-cut",
        "However the tokens are cut into calls, the text and its end are the same.",
        examples,
        _cuts,
        "I50",
        ("several", "unicode"),
    ),
    Property(
        "shown-in-time",
        "Text is shown as soon as no further token can change it or make a stop string of it.",
        examples,
        _eager,
        "I50",
        ("eager",),
    ),
)
