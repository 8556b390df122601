"""A model of a few words, for servers that are right or wrong on purpose."""

import json
import math
import random
import zlib
from dataclasses import dataclass, field
from typing import Any

WORDS = [
    " the", " one", " two", " of", "th", "e", "in", "g", ".", "!", "\n", "a", "s", " Paris", "é",
    "🙂", "漢", " stone",
]  # fmt: skip
VOCAB = 64  # ids; WORDS again and again
EOS = 63


def piece(token: int) -> str:
    return "" if token == EOS else WORDS[token % len(WORDS)]


@dataclass
class Step:
    """A token, its log-probability, and the most likely ones."""

    token: int
    text: str
    logprob: float | None
    tops: dict[str, float]


@dataclass
class Output:
    """A choice that is done.

    Attributes:
        pieces: What a stream may say with each step; joined they are the text.
    """

    steps: list[Step] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish: str = "length"
    stop: Any = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def numbers(context: str) -> list[float]:
    """Log-probabilities of each of WORDS and of the end, whatever is asked beside it."""
    rng = random.Random(zlib.crc32(context.encode("utf-8", "surrogatepass")))
    scores = [rng.gauss(0, 3) for _ in WORDS] + [rng.gauss(1.5, 3)]
    total = math.log(sum(map(math.exp, scores)))
    return [score - total for score in scores]


def step(context: str, wanted: dict[str, Any], place: int, index: int) -> Step:
    """The next token."""
    found = numbers(context)
    names = [*WORDS, ""]
    allowed = list(range(len(found)))
    if wanted["ignore_eos"] or place < wanted["min_tokens"]:
        allowed.pop()
    if place < wanted["min_tokens"]:
        allowed = [one for one in allowed if one not in wanted["stop_token_ids"]] or [0]
    best = max(allowed, key=lambda one: found[one])
    if wanted["temperature"] > 0:
        rng = random.Random(f"{wanted['seed']} {index} {place} {context}")
        best = rng.choices(allowed, [math.exp(found[one]) for one in allowed])[0]
    order = sorted(range(len(found)), key=lambda one: -found[one])
    tops = {names[one]: found[one] for one in order[: wanted["tops"]]}
    token = EOS if best == len(WORDS) else best
    return Step(token, names[best], found[best], tops | {names[best]: found[best]})


def complete(prompt: str, wanted: dict[str, Any], index: int) -> Output:
    """Tokens until a stop, the end or the limit."""
    output, text, given = Output(), "", 0
    for place in range(wanted["max_tokens"]):
        one = step(prompt + text, wanted, place, index)
        output.steps.append(one)
        before, text = text, text + one.text
        enough = place + 1 > wanted["min_tokens"]
        if one.token == EOS and not wanted["ignore_eos"]:
            output.finish = "stop"
        elif one.token in wanted["stop_token_ids"] and enough:
            output.finish, output.stop, text = "stop", one.token, before
        met = [(text.find(stop), stop) for stop in wanted["stop"] if enough and stop in text]
        if met:
            at, output.stop = min(met)
            output.finish = "stop"
            text = text[: at + len(output.stop) * wanted["include"]]
        held = max((len(stop) - 1 for stop in wanted["stop"]), default=0)
        is_last = output.finish == "stop" or place + 1 == wanted["max_tokens"]
        safe = len(text) if is_last else max(given, len(text) - held)
        output.pieces.append(text[given:safe])
        given = safe
        if output.finish == "stop":
            break
    return output


def of_schema(schema: Any, depth: int = 0) -> Any:
    """A value of a simple schema; of an odd one, something.

    Raises:
        ValueError: It is none.
    """
    if depth > 100:
        raise ValueError("the schema is too deep")
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        raise ValueError("a schema is an object or a boolean")
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        fields = schema.get("properties", {})
        if not isinstance(fields, dict):
            raise ValueError("properties must be an object")
        return {name: of_schema(one, depth + 1) for name, one in fields.items()}
    if kind == "array":
        return [of_schema(schema["items"], depth + 1)] if "items" in schema else []
    simple = {"string": "wörd", "integer": 7, "number": 0.5, "boolean": True, "null": None}
    if not isinstance(kind, str) or kind not in simple:
        raise ValueError(f"type {json.dumps(kind)} is not known")
    return simple[kind]


def said(text: str, tokens: int) -> Output:
    """An output of a text that is fixed, three characters to a token."""
    steps = [Step(0, text[at : at + 3], -0.1, {}) for at in range(0, len(text), 3)]
    cut = steps[:tokens]
    ended = "stop" if len(steps) <= tokens else "length"
    return Output(cut, [one.text for one in cut], ended)
