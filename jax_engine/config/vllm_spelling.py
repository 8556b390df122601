"""Flags as vLLM's users write them, made into what `argparse` reads.

--max_num_seqs 8            --max-num-seqs 8
-O3, -O 3, -O=3             --optimization-level 3
-cc.cudagraph_mode=FULL     --compilation-config '{"cudagraph_mode": "FULL"}'
--hf-overrides.a.b 1 --hf-overrides.a.c+ x,y
                            --hf-overrides '{"a": {"b": 1, "c": ["x", "y"]}}'
"""

import argparse
import json
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from jax_engine.config.engine_args import readable_integer

LEVEL = "--optimization-level"
LIKE = 0.8  # a flag so alike, or with most of the words, may be meant


def spelled_out(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words of a command line, with flags as the parser knows them.

    Words behind `--`, and flags that it does not know, stay as they are. Keys behind dots are
    gathered in one JSON object, beside those of an object that the same flag is given.
    """
    flags = parser._option_string_actions
    end = list(words).index("--") if "--" in words else len(words)
    found: list[str] = []
    keys: dict[str, dict[str, Any]] = {}
    rest = iter(words[:end])
    for word in rest:
        name, equals, value = _known(word, flags).partition("=")
        flag, dot, path = name.partition(".")
        if dot and flag in flags and word.startswith("-"):
            if not equals:
                following = next(rest, None)
                if following is None:
                    parser.error(f"{name} needs a value")
                value = following
            _set(keys.setdefault(flags[flag].option_strings[-1], {}), path, value)
        else:
            found += _level(name + equals + value) if LEVEL in flags else [name + equals + value]
    for flag, given in keys.items():
        whole = _taken_out(found, flags[flag].option_strings)
        found += [flag, json.dumps(_merged(whole, given))]
    return [*found, *words[end:]]


def _known(word: str, flags: dict[str, Any]) -> str:
    """The word, with the name of a flag in the form that is known: with - or with _."""
    matched = re.match(r"--[^=.]+", word)
    if matched is None or matched[0] in flags:
        return word
    for one in (matched[0].replace("_", "-"), "--" + matched[0][2:].replace("-", "_")):
        if one in flags:
            return one + word[matched.end() :]
    return word


def _level(word: str) -> list[str]:
    """`-O` takes its value with a space, with =, or with neither."""
    if word == "-O":
        return [LEVEL]
    matched = re.fullmatch(r"-O=?(\d)", word)
    return [word] if matched is None else [LEVEL, matched[1]]


def _set(keys: dict[str, Any], path: str, text: str) -> None:
    """Enters a value under a path of keys; with + behind it the text is a list."""
    value: Any = text.split(",") if path.endswith("+") else _value(text)
    *outer, last = path.removesuffix("+").split(".")
    for one in outer:
        inner = keys.setdefault(one, {})
        if not isinstance(inner, dict):
            inner = keys[one] = {}
        keys = inner
    before = keys.get(last)
    both = isinstance(value, list) and isinstance(before, list)
    keys[last] = before + value if both else value


def _value(text: str) -> Any:
    for read in (json.loads, readable_integer):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _taken_out(words: list[str], names: Sequence[str]) -> dict[str, Any]:
    """The last JSON object that one of these flags is given, which is removed from the words."""
    for at in range(len(words) - 1, -1, -1):
        name, equals, text = words[at].partition("=")
        if name not in names:
            continue
        count = 1 if equals else 2
        if count == 2:
            text = words[at + 1] if at + 1 < len(words) else ""
        try:
            given = json.loads(text)
        except ValueError:
            given = None
        if isinstance(given, dict):
            del words[at : at + count]
            return given
    return {}


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    found = dict(under)
    for name, value in over.items():
        before = found.get(name)
        both = isinstance(value, dict) and isinstance(before, dict)
        found[name] = _merged(before, value) if both else value  # type: ignore[arg-type]
    return found


def meant(flag: str, known: Sequence[str]) -> str:
    """The end of a message about a flag that is not known: the one that is likely meant, or ""."""
    parts = _parts(flag)

    def likeness(one: str) -> tuple[float, float]:
        others = _parts(one)
        shared = sum(any(_same(part, other) for other in others) for part in parts)
        ratio = SequenceMatcher(None, flag.lower(), one).ratio()
        return shared / (len(parts) + len(others) - shared), ratio

    def is_meant(one: str) -> bool:
        shared, like = likeness(one)
        return shared > 0.5 or like >= LIKE

    near = max(filter(is_meant, known), key=lambda one: sum(likeness(one)), default=None)
    return "" if near is None else f"; did you mean {near}?"


def _parts(flag: str) -> set[str]:
    return set(flag.lower().strip("-").replace("_", "-").split("-"))


def _same(part: str, other: str) -> bool:
    """Whether two words are the same, or one is short for the other."""
    short, long = sorted((part, other), key=len)
    return part == other or (len(short) >= 3 and long.startswith(short))
