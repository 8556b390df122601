"""The smallest example that shows a fault: drawn by chance, then made smaller while it still falls.

    python -m playground.smallest      writes examples.json, which the page opens

>>> found = smallest(["no copy on write"])
>>> found["fell"]["invariant"], len(found["settings"]["requests"])
('I10', 1)
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from playground.breaks import BREAKS
from playground.session import EXAMPLES, run
from playground.settings import NUMBERS, REQUEST, Settings
from playground.words import PROMPTS

TRIES, ENOUGH = 4000, 6
FEW = ("rain", "snow", "and")

type Shows = Callable[[Settings], Mapping[str, Any] | None]


def smallest(breaks: Sequence[str]) -> dict[str, Any] | None:
    """Settings under which these faults fall, and how; None if none was found."""
    falls = (one for one in _candidates(breaks) if _shown(one))
    found = [_shrunk(one, _shown) for one in islice(falls, ENOUGH)]
    if not found:
        return None
    best = min(found, key=_size)
    return {"settings": best, "fell": _fell(best)}


def reduced(settings: dict[str, Any]) -> dict[str, Any]:
    """A reader's settings, made smaller while the fault still shows; as they are if none does."""
    if _shown(settings):
        return _shrunk(settings, _shown)
    return _shrunk(settings, _fell) if _fell(settings) else settings


def main() -> None:
    """Writes the examples that the page opens."""
    found = {}
    for name in BREAKS:
        example = smallest([name])
        assert example is not None, name
        found[name] = _plain(example["settings"])
        print(f"{name}: {example['fell']['invariant']} in step {example['fell']['step']}")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in found)
    EXAMPLES.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what is as it would be anyway."""
    requests = [
        {
            name: value
            for name, value in one.items()
            if name in ("prompt", "says") or value != REQUEST[name][0]
        }
        for one in settings["requests"]
    ]
    kept = {
        name: value for name, value in settings.items() if value != NUMBERS.get(name, (None,))[0]
    }
    return {**kept, "requests": requests}


def _candidates(breaks: Sequence[str]) -> Iterator[dict[str, Any]]:
    chance = random.Random("smallest")
    for number in range(TRIES):
        yield drawn(chance, breaks, 1 + number // 40 % 10)


def drawn(chance: random.Random, breaks: Sequence[str], size: int) -> dict[str, Any]:
    """Settings by chance; with `size`, requests are more and longer, and memory is larger."""
    needs = {name: value for one in breaks for name, value in BREAKS[one].needs.items()}
    if "guesses" in needs:
        return _repeating(chance, breaks, size) | needs
    requests = []
    for _ in range(chance.randint(1, min(1 + size, 4))):
        beams = chance.choice((0, 0, 0, 2, 3))
        requests.append(
            {
                "prompt": " ".join(chance.choice(PROMPTS).split()[: chance.randint(1, 8)]),
                "n": 1 if beams else chance.choice((1, 1, 2, 3)),
                "beams": beams,
                "max_tokens": chance.randint(1, 4 + size),
                "step": chance.randint(1, 3),
            }
        )
    return {
        "requests": requests,
        "block_size": chance.choice((1, 2, 3, 4)),
        "gpu_blocks": chance.randint(3, 8 + 2 * size),
        **needs,
        "breaks": list(breaks),
    }


def _repeating(chance: random.Random, breaks: Sequence[str], size: int) -> dict[str, Any]:
    """Requests of few words, which stood before: they are guessed, and one begins as another."""

    def text(longest: int) -> str:
        return " ".join(chance.choice(FEW) for _ in range(chance.randint(1, longest)))

    requests: list[dict[str, Any]] = []
    for _ in range(chance.randint(1, 3)):
        known = f"{requests[0]['prompt']} {requests[0]['says']}".split() if requests else []
        begun = known[: chance.randint(0, len(known))]
        requests.append(
            {
                "prompt": " ".join([*begun, text(6 + size)]),
                "says": text(4 + size),
                "n": 1,
                "beams": 0,
                "max_tokens": 4 + size,
                "step": chance.randint(1, 4 + size),
            }
        )
    return {
        "requests": requests,
        "block_size": chance.choice((1, 2, 3, 4)),
        "gpu_blocks": chance.randint(3, 8 + 2 * size),
        "breaks": list(breaks),
    }


def _fell(settings: Settings) -> Mapping[str, Any] | None:
    """What fell, if it is what these faults are known for."""
    fell: Mapping[str, Any] | None = run(settings).get("fell")
    known = {name for one in settings["breaks"] for name in BREAKS[one].falls}
    return fell if fell is not None and fell["invariant"] in known else None


def _shown(settings: Settings) -> Mapping[str, Any] | None:
    """As `_fell`, with what these faults say that it leads to, and that it would not without."""
    fell = _fell(settings)
    wanted = {name for one in settings["breaks"] for name in BREAKS[one].then}
    if fell is not None and wanted:
        return fell if (fell["then"] or {}).get("invariant") in wanted else None
    if fell is None or not any(BREAKS[one].preempts for one in settings["breaks"]):
        return fell
    at_once = fell["preempted"] == fell["step"] + 1
    return fell if at_once and not _preempts({**settings, "breaks": []}) else None


def _preempts(settings: Settings) -> bool:
    moments = run(settings)["trace"]["moments"]
    return any(
        one["kind"] == "plan" and set(before["queues"]["running"]) - set(one["queues"]["running"])
        for before, one in pairwise(moments)
    )


def _size(settings: Settings) -> int:
    requests = settings["requests"]
    words = sum(len(one["prompt"].split()) + one["max_tokens"] * one["n"] for one in requests)
    return int(10 * len(requests) + words + 5 * sum(one["beams"] for one in requests))


def _shrunk(settings: dict[str, Any], shows: Shows) -> dict[str, Any]:
    """Nothing in it can be left out or lowered by one without the fault's not showing."""
    while True:
        smaller = next((one for one in _smaller(settings) if shows(one)), None)
        if smaller is None:
            return settings
        settings = smaller


def _smaller(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    requests = settings["requests"]
    for i, request in enumerate(requests):
        rest = requests[:i], requests[i + 1 :]
        if len(requests) > 1:
            yield {**settings, "requests": [*rest[0], *rest[1]]}
        words = request["prompt"].split()
        says = request.get("says", "").split()
        shorter = [{"prompt": " ".join(words[:-1])}] if len(words) > 1 else []
        shorter += [{"says": " ".join(says[:-1])}] if len(says) > 1 else []
        shorter += [
            {field: request.get(field, usual) - 1}
            for field, (usual, least, _) in REQUEST.items()
            if request.get(field, usual) > least
        ]
        for change in shorter:
            yield {**settings, "requests": [*rest[0], {**request, **change}, *rest[1]]}
    for field in ("gpu_blocks", "cpu_blocks", "block_size", "guesses"):
        usual, least, _ = NUMBERS[field]
        if settings.get(field, usual) > least:
            yield {**settings, field: settings.get(field, usual) - 1}


if __name__ == "__main__":
    main()
