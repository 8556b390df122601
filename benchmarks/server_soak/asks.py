"""The requests: good ones with their offline params, and bad ones with the status they deserve."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from benchmarks.server_soak.client import POLITE, Manner
from benchmarks.soak import LETTERS
from jax_engine.sampling_params import SamplingParams

MAX_BODY = 1 << 16
STRANGE: list[Any] = [None, True, -1, 2**70, 1e308, "", "\ud800", [], [[]], {}, {"a": {}}, [None]]
FIELDS = ("prompt", "n", "stop", "temperature", "stream", "logit_bias", "seed", "zzz", "logprobs",
          "structured_outputs", "max_tokens", "stream_options", "priority")  # fmt: skip


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        statuses: the statuses of which its answer must have one.
        prompt, params: what `LLM.generate` is asked for the same answer; None: there is none.
        body: what the message says.
    """

    kind: str
    message: bytes
    manner: Manner = POLITE
    statuses: frozenset[int] = frozenset({200})
    prompt: Any = None
    params: SamplingParams | None = None
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))


def make(rng: random.Random, max_tokens: int) -> Ask:
    """The next request."""
    kind = rng.choices([*MAKERS], [weight for _, weight in MAKERS.values()])[0]
    return MAKERS[kind][0](rng, kind, max_tokens)


def http(path: str, content: bytes | None, *headers: str) -> bytes:
    """A request's bytes; without content a GET."""
    lines = [f"{'GET' if content is None else 'POST'} {path} HTTP/1.1", "Host: x"]
    if content is not None and not any("Transfer" in one for one in headers):
        lines.append(f"Content-Length: {len(content)}")
    lines += ["Content-Type: application/json", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + (content or b"")


def _good(rng: random.Random, kind: str, max_tokens: int) -> Ask:
    prompt = "a beginning many share " * rng.randint(0, 1)
    prompt += "".join(rng.choices(LETTERS, k=rng.randint(1, 12)))
    common: dict[str, Any] = {
        "seed": rng.getrandbits(31),
        "temperature": rng.choice([0.0, 0.0, 0.7, 1.0]),
        "max_tokens": rng.randint(1, max_tokens),
        "n": rng.choice([1, 1, 1, 2, 4]),
        "ignore_eos": rng.random() < 0.5,
    }
    if common["temperature"] == 0.0:
        common["n"] = 1
    if rng.random() < 0.2:
        common["stop"] = rng.choice(["a", "bc"])
    if kind == "slow":  # more than fits into the kernel's buffers
        common |= {"n": 1, "temperature": 0.0, "max_tokens": max_tokens}
    body = {"prompt": prompt, **common, "stream": kind == "slow" or rng.random() < 0.6}
    if kind == "slow":
        body["logprobs"] = 5
    if body["stream"] and rng.random() < 0.5:
        body["stream_options"] = {"include_usage": True}
    params = SamplingParams(**common)
    message = http("/v1/completions", json.dumps(body).encode())
    manner = _manner(rng, kind)
    return Ask(kind, message, manner, prompt=prompt, params=params, body=body)


def _manner(rng: random.Random, kind: str) -> Manner:
    if kind == "leaves":
        if rng.random() < 0.5:
            return Manner(leave_after_s=rng.uniform(0, 0.1))
        return Manner(leave_after_bytes=rng.randint(0, 2000))
    return Manner(pause_s=0.01) if kind == "slow" else POLITE


def _half_sent(rng: random.Random, kind: str, max_tokens: int) -> Ask:
    message = _good(rng, kind, max_tokens).message
    return Ask(kind, message, Manner(sends=rng.uniform(0.1, 0.95)))


def _oversized(rng: random.Random, kind: str, max_tokens: int) -> Ask:
    refused = frozenset({413})
    if rng.random() < 0.5:
        content = b'{"prompt": "' + b"x" * 2 * MAX_BODY + b'"}'
        return Ask(kind, http("/v1/completions", content), statuses=refused)
    chunk = b"x" * 0x4000
    content = b"4000\r\n" + chunk + b"\r\n"
    content = content * 6 + b"0\r\n\r\n"
    message = http("/v1/completions", content, "Transfer-Encoding: chunked")
    return Ask(kind, message, statuses=refused)


def _malformed(rng: random.Random, kind: str, max_tokens: int) -> Ask:
    body: dict[str, Any] = {"prompt": "x", "max_tokens": 2, rng.choice(FIELDS): rng.choice(STRANGE)}
    content = json.dumps(body).encode()
    if rng.random() < 0.5:
        at = rng.randrange(len(content))
        content = content[:at] + rng.choice([b"", b"\xff", b"{", b'"']) + content[at + 2 :]
    return Ask(kind, http("/v1/completions", content), statuses=frozenset({200, 400}))


def _no_http(rng: random.Random, kind: str, max_tokens: int) -> Ask:
    message = rng.choice([b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", rng.randbytes(64)])
    return Ask(kind, message + b"\r\n\r\n", Manner(leave_after_s=0.2), frozenset({400}))


def _too_long(rng: random.Random, kind: str, max_tokens: int) -> Ask:
    body = json.dumps({"prompt": "long " * 4000}).encode()
    return Ask(kind, http("/v1/completions", body), statuses=frozenset({400}))


def _look(rng: random.Random, kind: str, max_tokens: int) -> Ask:
    path = rng.choice(["/metrics", "/health", "/v1/models", "/nowhere"])
    return Ask(kind, http(path, None), statuses=frozenset({404 if path == "/nowhere" else 200}))


MAKERS: dict[str, tuple[Any, float]] = {
    "good": (_good, 0.45),
    "leaves": (_good, 0.25),
    "slow": (_good, 0.04),
    "half sent": (_half_sent, 0.05),
    "oversized": (_oversized, 0.04),
    "malformed": (_malformed, 0.09),
    "no HTTP": (_no_http, 0.02),
    "too long": (_too_long, 0.02),
    "look": (_look, 0.04),
}
