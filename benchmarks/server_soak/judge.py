"""Whether an answer is what it must be: the offline one, the beginning of it, or an error."""

import json
from collections import defaultdict

from benchmarks.server_soak.asks import Ask
from benchmarks.server_soak.client import Answer
from jax_engine import LLM

BATCH = 256
type Exchange = tuple[Ask, Answer, bool]  # whether the engine was killed meanwhile


def problems(llm: LLM, exchanges: list[Exchange]) -> list[str]:
    """What is wrong, a line each."""
    found = [line for one in exchanges for line in _shape(*one)]
    answered = [one for one in exchanges if one[0].params is not None and one[1].status == 200]
    for start in range(0, len(answered), BATCH):
        some = answered[start : start + BATCH]
        prompts, params = [one[0].prompt for one in some], [one[0].params for one in some]
        outputs = llm.generate(prompts, params, use_tqdm=False)  # type: ignore[arg-type]
        for (ask, answer, killed), output in zip(some, outputs, strict=True):
            offline = [(one.text, one.finish_reason) for one in output.outputs]
            found += _differences(ask, answer, offline, killed)
    return found


def _shape(ask: Ask, answer: Answer, killed: bool) -> list[str]:
    """Statuses, errors' form, and answers that did not end."""
    if killed:
        allowed = ask.statuses | {500, 503, None}
    elif ask.manner.leave_after_s is not None or ask.manner.sends < 1:
        allowed = ask.statuses | {None}
    else:
        allowed = ask.statuses
        left = ask.manner.leave_after_bytes is not None
        if answer.problem or not (answer.whole or left):
            return [f"{ask.kind}: {answer.problem or 'no end'}, status {answer.status}"]
    if answer.status not in allowed:
        return [
            f"{ask.kind}: status {answer.status}, {answer.body[:200]!r} to {ask.message[:300]!r}"
        ]
    if answer.whole and answer.status not in (200, None) and ask.kind != "no HTTP":
        error = json.loads(answer.body)["error"]
        if error.keys() != {"message", "type", "param", "code"}:
            return [f"{ask.kind}: an error of another form: {error}"]
    return []


def _differences(
    ask: Ask, answer: Answer, offline: list[tuple[str, str | None]], killed: bool
) -> list[str]:
    if not ask.stream:
        if not answer.whole:
            return []
        choices = json.loads(answer.body)["choices"]
        mine = [(one["text"], one["finish_reason"]) for one in choices]
        same = mine == offline
    else:
        texts, ends, has_error = _streamed(answer.body)
        if has_error and not killed:
            return [f"{ask.kind}: an error in a stream: {answer.body[-300:]!r}"]
        mine = [(texts[i], ends.get(i)) for i in range(len(offline))]
        if answer.whole and not has_error:
            same = mine == offline
        else:
            pairs = zip(mine, offline, strict=True)
            same = all(whole[0].startswith(part[0]) for part, whole in pairs)
    return [] if same else [f"{ask.kind}: {mine} is not offline's {offline} for {ask.body}"]


def _streamed(body: bytes) -> tuple[dict[int, str], dict[int, str], bool]:
    """Texts and ends of each choice, and whether there was an error."""
    texts: dict[int, str] = defaultdict(str)
    ends: dict[int, str] = {}
    has_error = False
    for event in body.split(b"\n\n")[:-1]:
        if event == b"data: [DONE]":
            continue
        content = json.loads(event.removeprefix(b"data: "))
        has_error |= "error" in content
        for one in content.get("choices", []):
            texts[one["index"]] += one["text"]
            if one["finish_reason"] is not None:
                ends[one["index"]] = one["finish_reason"]
    return texts, ends, has_error
