"""A request's parameters: their defaults, their ranges, and the several ways of saying one thing.

A client may leave parameters out, name the same thing in several ways (`top_k=-1` is `top_k=0`,
`stop="x"` is `stop=["x"]`), or ask for what cannot be. `parameters` gives one form of each request
that means something, and refuses the others by name. The chapters on logits, sampling, sequences,
text and outputs read that form. The rules:

1. Numbers are finite and in the ranges of `RANGES`. Booleans are no numbers.
2. What contradicts itself is refused: `_contradictions` lists the cases.
3. Of a greedy request (a temperature below 1e-5) the temperature is 0, and the filters are off: one
   token is left in any case. Without `best_of` as many samples are drawn as are returned. No seed
   is None or -1; of a seed 64 bits count. Biases are clipped to [-100, 100], and token ids may be
   written as text there, as in JSON. Beams are compared at their end, so a search gives out one
   output.

>>> parameters(temperature=1e-6, top_k=5, seed=-1, stop="x", logit_bias={"3": 1000}).changes()
{'stop': ('x',), 'logit_bias': {3: 100.0}, 'temperature': 0.0}
>>> parameters(n=2, best_of=2, top_k=-1, seed=-2, thinking_token_budget=-1).changes()
{'n': 2, 'seed': 18446744073709551614}
>>> parameters(n=3, best_of=2)
Traceback (most recent call last):
    ...
reference.parameters.BadParameters: best_of
>>> sorted(wrong(temperature=0, n=2, top_p=0, min_tokens=17))
['best_of', 'min_tokens', 'top_p']
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from reference.sampling import GREEDY_BELOW

MAX_SAMPLES = 16384
MAX_LOGPROB_TOKEN_IDS = 128
ANY = math.inf

# Lowest and highest value; of integers, then of other numbers.
INTEGERS: dict[str, tuple[float, float]] = {
    "n": (1, MAX_SAMPLES),
    "best_of": (1, MAX_SAMPLES),
    "top_k": (-1, ANY),
    "max_tokens": (1, ANY),
    "min_tokens": (0, ANY),
    "logprobs": (-1, ANY),
    "prompt_logprobs": (-1, ANY),
    "thinking_token_budget": (-1, ANY),
    "seed": (-(2**63), 2**64 - 1),
}
SMALLEST = math.nextafter(0.0, 1.0)  # for what must be above 0
NUMBERS: dict[str, tuple[float, float]] = {
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "repetition_penalty": (SMALLEST, ANY),
    "temperature": (0, ANY),
    "top_n_sigma": (0, ANY),
    "top_p": (SMALLEST, 1),
    "min_p": (0, 1),
    "length_penalty": (-32, 32),
}
# The fewest and the most of them.
TOKEN_IDS: dict[str, tuple[float, float]] = {
    "stop_token_ids": (0, ANY),
    "allowed_token_ids": (1, ANY),
    "logprob_token_ids": (1, MAX_LOGPROB_TOKEN_IDS),
}
# Filters of the draw, and the values at which they are off. A greedy request has none, and neither
# has beam search: it compares whole outputs, by probabilities that no filter has touched.
FILTERS: dict[str, tuple[float, ...]] = {
    "top_n_sigma": (0.0,), "top_k": (0, -1), "top_p": (1.0,), "min_p": (0.0,)
}  # fmt: skip
# What may be None: "not asked for", or of `max_tokens` "as many as fit".
OPTIONAL = {
    "best_of", "seed", "max_tokens", "logprobs", "prompt_logprobs", "stop", "logit_bias",
    "thinking_token_budget", *TOKEN_IDS
}  # fmt: skip


class BadParameters(ValueError):
    """Some parameters are refused; the message names them."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The one form of a request's parameters; `parameters` makes it."""

    n: int = 1
    best_of: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_n_sigma: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    thinking_token_budget: int | None = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    output_kind: str = "CUMULATIVE"

    @property
    def num_samples(self) -> int:
        return self.n if self.best_of is None else self.best_of

    @property
    def ranked(self) -> bool:
        """Are more samples drawn than are returned? (Of beams those that are returned are best.)"""
        return self.num_samples > self.n and not self.use_beam_search

    def changes(self) -> dict[str, Any]:
        """What is not as if nothing had been asked for."""
        default = Parameters()
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in named.items() if value != getattr(default, name)}


def parameters(**given: Any) -> Parameters:
    """Rules 1 to 3. Raises BadParameters, with the names of what is refused."""
    refused = wrong(**given)
    if refused:
        raise BadParameters(", ".join(sorted(refused)))
    form = dict(given)
    form["stop"] = _strings(given.get("stop"))
    form["stop_token_ids"] = given.get("stop_token_ids") or ()
    for name in TOKEN_IDS:
        if form.get(name) is not None:
            form[name] = tuple(form[name])
    bias = given.get("logit_bias") or {}
    form["logit_bias"] = {int(token): max(-100.0, min(100.0, bias[token])) for token in bias}
    form["output_kind"] = "FINAL_ONLY" if given.get("use_beam_search") else _kind(given)
    if given.get("best_of") == given.get("n", 1):
        form["best_of"] = None
    if given.get("thinking_token_budget") == -1:
        form["thinking_token_budget"] = None
    if given.get("top_k") == -1:
        form["top_k"] = 0
    if given.get("seed") is not None:
        form["seed"] = None if given["seed"] == -1 else given["seed"] % 2**64
    if _greedy(given):
        form |= {"temperature": 0.0} | {name: off[0] for name, off in FILTERS.items()}
    return Parameters(**form)


def wrong(**given: Any) -> set[str]:
    """Rules 1 and 2: the names of the parameters that are refused, none if all is well."""
    refused = {name for name, value in given.items() if not _in_range(name, value)}
    sound = {name: value for name, value in given.items() if name not in refused}
    return refused | _contradictions(sound)


def _contradictions(given: Mapping[str, Any]) -> set[str]:
    """Rule 2."""
    n, longest = given.get("n", 1), given.get("max_tokens", 16)
    samples = given.get("best_of") or n
    stop, chosen = _strings(given.get("stop")), given.get("logprob_token_ids")
    beams = given.get("use_beam_search", False)
    cases = [
        ("best_of", samples < n),
        # What was given out cannot be taken back
        ("best_of", _kind(given) == "DELTA" and samples > n and not beams),
        # All would be the same
        ("best_of", _greedy(given) and samples > 1 and not beams),
        ("min_tokens", longest is not None and given.get("min_tokens", 0) > longest),
        # There would be no text to find it in
        ("stop", bool(stop) and not given.get("detokenize", True)),
        ("logprobs", chosen is not None and given.get("logprobs") not in (None, len(chosen))),
        *((name, beams and given.get(name, off[0]) not in off) for name, off in FILTERS.items()),
        ("stop", beams and bool(stop)),
        ("logprobs", beams and given.get("logprobs") is not None),
        ("logprob_token_ids", beams and chosen is not None),
        ("thinking_token_budget", beams and given.get("thinking_token_budget") not in (None, -1)),
    ]
    return {name for name, contradicts in cases if contradicts}


def _in_range(name: str, value: Any) -> bool:
    """Rule 1."""
    if value is None:
        return name in OPTIONAL
    if name in INTEGERS:
        low, high = INTEGERS[name]
        return _is_integer(value) and low <= value <= high
    if name in NUMBERS:
        low, high = NUMBERS[name]
        return _is_number(value) and low <= value <= high
    if name == "stop":
        return all(isinstance(one, str) and one != "" for one in _strings(value))
    if name == "logit_bias":
        return all(_is_token_id(one) and _is_number(value[one]) for one in value)
    if name in TOKEN_IDS:
        low, high = TOKEN_IDS[name]
        return low <= len(value) <= high and all(_is_integer(one) and one >= 0 for one in value)
    return True


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_token_id(value: Any) -> bool:
    return str(value).isdecimal()


def _strings(stop: Any) -> tuple[Any, ...]:
    """Stop strings, however they were given."""
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _greedy(given: Mapping[str, Any]) -> bool:
    return bool(given.get("temperature", 1.0) < GREEDY_BELOW)


def _kind(given: Mapping[str, Any]) -> str:
    """CUMULATIVE, DELTA or FINAL_ONLY: a name, or a member of some enumeration."""
    kind = given.get("output_kind", "CUMULATIVE")
    return str(getattr(kind, "name", kind))
