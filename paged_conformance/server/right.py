"""Right servers of other habits: what the suite must not mind."""

import random
import threading
import time
from typing import Any

from paged_conformance.server.scripted import Bad, Handler, Scripted
from paged_conformance.server.scripted_model import Output


class ExtraFields(Scripted):
    """Answers have fields that no reference knows; nulls where nothing is."""

    def answer(self, body: Any, api: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        whole, stream = super().answer(body, api)
        more = {"system_fingerprint": None, "service_tier": "x", "timings": {"ms": 1.5}}
        return whole | more, [one | more for one in stream]


class Lax(Scripted):
    """Values out of range are clamped, and fields of extensions are not known."""

    def check(self, body: dict[str, Any]) -> None:
        for name in ("stop_token_ids", "min_tokens", "ignore_eos", "return_token_ids"):
            body.pop(name, None)
        for name, low, high in (("temperature", 0, 2), ("top_p", 0.1, 1), ("n", 1, 128)):
            value = body.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                clamped = min(max(value, low), high) if value == value else low
                body[name] = int(clamped) if name == "n" else clamped
        if type(body.get("max_tokens")) is int and body["max_tokens"] < 1:
            body["max_tokens"] = None  # as many as fit
        super().check(body)


class Strict(Scripted):
    """Fields that it does not know are refused, and so are samples and log-probabilities."""

    KNOWN = frozenset(
        {"model", "prompt", "messages", "max_tokens", "temperature", "stream", "stop"}
    )

    def check(self, body: dict[str, Any]) -> None:
        for name in body.keys() - self.KNOWN:
            raise Bad(f"{name} is not known")
        super().check(body)


class IdsForText(Scripted):
    """Token ids stand in the place of an echo."""

    def check(self, body: dict[str, Any]) -> None:
        super().check(body)
        if body.get("return_token_ids"):
            body.pop("echo", None)


class Jittery(Scripted):
    """Sums come in another order each time, so log-probabilities differ a little."""

    def complete(self, prompt: str, wanted: dict[str, Any], index: int) -> Output:
        output = super().complete(prompt, wanted, index)
        for one in output.steps:
            assert one.logprob is not None
            one.logprob = min(0.0, one.logprob + random.uniform(-0.01, 0.01))
        return output


class OneAtATime(Scripted):
    """One request at a time; the others wait."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = threading.Semaphore(1)


class OtherChunks(Handler):
    """Events are cut anywhere, also within characters, and a comment keeps the line alive."""

    def chunks(self, events: list[bytes]) -> list[bytes]:
        whole = b": still here\n\n" + b"".join(events)
        return [whole[at : at + 7] for at in range(0, len(whole), 7)]

    def kind(self, status: int) -> str:
        return "application/json; charset=utf-8"


class Unhurried(Handler):
    """Takes its time before it answers, and between two events."""

    def whole(self, status: int, body: Any) -> None:
        time.sleep(0.02)
        super().whole(status, body)

    def pause(self) -> None:
        time.sleep(0.005)


RIGHT: tuple[tuple[type[Scripted], type[Handler]], ...] = (
    (Scripted, Handler),
    (ExtraFields, OtherChunks),
    (Lax, Handler),
    (Strict, Handler),
    (IdsForText, Handler),
    (Jittery, Handler),
    (OneAtATime, Unhurried),
)
