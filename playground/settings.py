"""What a reader of the playground may set, checked, and the scenario that it makes.

>>> scenario = scenario_of({"requests": [{"prompt": "To be or", "max_tokens": 2}]})
>>> scenario.requests[0].name, scenario.num_gpu_blocks
('A', 9)
>>> scenario_of({"gpu_blocks": 100})
Traceback (most recent call last):
playground.settings.SettingError: gpu_blocks must be a whole number from 1 to 40, got 100
"""

from collections.abc import Mapping
from typing import Any

from playground.trace_run import STOP
from playground.trace_scenarios import Guessing, Scenario, TracedRequest
from playground.words import Ways, output

type Settings = Mapping[str, Any]

NUMBERS: Mapping[str, tuple[int, int, int]] = {
    "block_size": (4, 1, 8),
    "gpu_blocks": (9, 1, 40),
    "cpu_blocks": (0, 0, 40),
    "watermark_percent": (1, 0, 50),
    "budget": (32, 1, 64),
    "devices": (1, 1, 4),
    "seed": (0, 0, 9999),
    "guesses": (0, 0, 8),
    "lookup_min": (1, 1, 5),
    "lookup_max": (3, 1, 5),
    "slots": (0, 0, 4),
}
"""Field: its default, the least and the most."""
REQUEST: Mapping[str, tuple[int, int, int]] = {
    "n": (1, 1, 4),
    "beams": (0, 0, 4),
    "max_tokens": (6, 1, 24),
    "step": (1, 1, 60),
}
CHOICES = {
    "scheduling": ("unified", "sosp", "sosp-mixed"),
    "preemption": ("default", "recompute", "swap"),
}
ADAPTERS = ("", "pirate", "verse", "french")
"""What a request may ask for; "": the model alone."""
SWITCHES = ("prefix_caching", "chunked_prefill")
MOST_REQUESTS, MOST_WORDS, MOST_LETTERS = 6, 40, 20
MAX_MODEL_LEN, MAX_NUM_SEQS, MAX_DRAFTS = 64, 16, 32
MOST_STEPS = 150


class SettingError(ValueError):
    """A setting is out of its range; the message names it, its value and the range."""


def scenario_of(settings: Settings) -> Scenario:
    """Raises SettingError. `breaks` is read by `breaks.systems`, `devices` by whoever draws."""
    known = {*NUMBERS, *CHOICES, *SWITCHES, "requests", "breaks"}
    for name in settings:
        if name not in known:
            raise SettingError(f"{name!r} is no setting; known are {', '.join(sorted(known))}")
    number = {name: _number(settings, name, *limits) for name, limits in NUMBERS.items()}
    choice = {name: _choice(settings, name, known) for name, known in CHOICES.items()}
    caches, chunks = (_switch(settings, name, default) for name, default in zip(
        SWITCHES, (False, True), strict=True
    ))  # fmt: skip
    unified = choice["scheduling"] == "unified"
    if caches and not unified:
        raise SettingError(
            f"prefix_caching needs scheduling 'unified', not {choice['scheduling']!r}"
        )
    guessing = _guessing(number)
    if guessing is not None and not unified:
        raise SettingError(f"guesses need scheduling 'unified', not {choice['scheduling']!r}")
    whole = not unified or not chunks  # a prompt is computed in one step
    return Scenario(
        "playground",
        "Playground",
        "",
        _requests(settings.get("requests", [{"prompt": "Four score and seven"}]), number["seed"]),
        num_gpu_blocks=number["gpu_blocks"],
        num_cpu_blocks=number["cpu_blocks"],
        watermark=number["watermark_percent"] / 100,
        enable_prefix_caching=caches,
        settings={
            "scheduling": choice["scheduling"],
            "preemption_mode": None if choice["preemption"] == "default" else choice["preemption"],
            "enable_chunked_prefill": chunks,
            "max_num_seqs": MAX_NUM_SEQS,
            "max_num_batched_tokens": max(number["budget"], MAX_MODEL_LEN if whole else 1),
            "max_model_len": MAX_MODEL_LEN,
            "admission_rule": "no admission rule" not in settings.get("breaks", ()),
            "max_loras": number["slots"],
            "max_draft_tokens": MAX_DRAFTS if guessing is not None else 0,
        },
        most_steps=MOST_STEPS,
        block_size=number["block_size"],
        guessing=guessing,
    )


def _guessing(number: Mapping[str, int]) -> Guessing | None:
    """None where nothing is guessed."""
    shortest, longest = number["lookup_min"], number["lookup_max"]
    if shortest > longest:
        raise SettingError(f"lookup_min must be at most lookup_max, {longest}, got {shortest}")
    return Guessing(number["guesses"], shortest, longest) if number["guesses"] else None


def _requests(given: Any, seed: int) -> tuple[TracedRequest, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_REQUESTS:
        raise SettingError(f"requests must be a list of 1 to {MOST_REQUESTS}, got {given!r}")
    return tuple(_request(one, "ABCDEF"[i], seed) for i, one in enumerate(given))


def _request(given: Any, name: str, seed: int) -> TracedRequest:
    if not isinstance(given, Mapping):
        raise SettingError(f"request {name} must be an object, got {given!r}")
    for field in given:
        if field not in (*REQUEST, "prompt", "says", "adapter"):
            raise SettingError(f"request {name}: {field!r} is no setting of a request")
    try:
        number = {field: _number(given, field, *limits) for field, limits in REQUEST.items()}
    except SettingError as error:
        raise SettingError(f"request {name}: {error}") from None
    words = _words(given, name, "prompt", 1, MOST_WORDS)
    says = _words(given, name, "says", 0, REQUEST["max_tokens"][2])
    most, beams = number["max_tokens"], number["beams"]
    adapter = _adapter(given, name)
    if beams:
        if says:
            raise SettingError(f"request {name}: beams say what is probable: they take no 'says'")
        longest = (" ".join([STOP] * most),)  # of a beam search only its length counts
        ways = Ways(seed, name)
        return TracedRequest(name, " ".join(words), longest, number["step"], beams, ways, adapter)
    said = " ".join(says[:most])
    outputs = tuple(said or output(seed, name, i, most) for i in range(number["n"]))
    return TracedRequest(name, " ".join(words), outputs, number["step"], adapter=adapter)


def _adapter(given: Mapping[str, Any], request: str) -> str | None:
    value = given.get("adapter", "")
    if value not in ADAPTERS:
        known = ", ".join(repr(one) for one in ADAPTERS)
        raise SettingError(f"request {request}: adapter must be one of {known}, got {value!r}")
    return str(value) or None


def _words(given: Mapping[str, Any], request: str, field: str, least: int, most: int) -> list[str]:
    """The words of a text, each cut to MOST_LETTERS."""
    text = given.get(field, "")
    words = text.split() if isinstance(text, str) else None
    if words is None or not least <= len(words) <= most:
        raise SettingError(
            f"request {request}: {field} must be {least} to {most} words, got {text!r}"
        )
    return [word[:MOST_LETTERS] for word in words]


def _number(settings: Settings, name: str, default: int, least: int, most: int) -> int:
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SettingError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    return value


def _choice(settings: Settings, name: str, known: tuple[str, ...]) -> str:
    value = settings.get(name, known[0])
    if value not in known:
        raise SettingError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return str(value)


def _switch(settings: Settings, name: str, default: bool) -> bool:
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise SettingError(f"{name} must be true or false, got {value!r}")
    return value
