"""A few hundred requests of the soak, and what the soak would notice."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.server_soak import client, lives
from benchmarks.server_soak.asks import Ask
from benchmarks.server_soak.benchmark import memory, settings_of, soaked
from benchmarks.server_soak.client import Answer, Manner
from benchmarks.server_soak.judge import problems
from jax_engine import SamplingParams
from tests.support.patience import HANG_S


@pytest.mark.slow
def test_rude_clients_and_a_killed_engine_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((lives, "IDLE_S"), (lives, "END_S"), (client, "PATIENCE_S")):
        monkeypatch.setattr(module, name, HANG_S)
    settings = settings_of(tmp_path, smollm2=False)
    found = soaked(settings, requests=160, kills=1, max_tokens=12, log=tmp_path / "log", looks=2)
    assert found["broken"] == []
    assert found["kills"] == 1 and found["requests"] > 160 and len(found["looks"]) == 2
    assert found["compared_whole"] > 50 and found["compared_in_part"] > 0
    assert found["statuses"]["400"] > 3 and found["statuses"]["413"] > 1


def _answer(body: bytes, status: int = 200, whole: bool = True) -> Answer:
    answer = Answer()
    answer.body, answer.status, answer.whole = body, status, whole
    return answer


def _whole(text: str, reason: str = "length") -> bytes:
    return json.dumps({"choices": [{"text": text, "finish_reason": reason}]}).encode()


def _stream(*texts: str, end: str = "length") -> bytes:
    ends = [None] * (len(texts) - 1) + [end]
    events = [
        {"choices": [{"index": 0, "text": text, "finish_reason": reason}]}
        for text, reason in zip(texts, ends, strict=True)
    ]
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events)


def _wrong(answer: Answer, *, stream: bool, killed: bool = False, manner: Any = None) -> list[str]:
    """What is said of an answer, where the offline one is "abc"."""
    output = SimpleNamespace(outputs=[SimpleNamespace(text="abc", finish_reason="length")])
    llm: Any = SimpleNamespace(generate=lambda *_, **__: [output])
    body = {"stream": stream}
    ask = Ask("good", b"", manner or Manner(), prompt="x", params=SamplingParams(), body=body)
    return problems(llm, [(ask, answer, killed)])


ERROR = b'data: {"error": {"message": "x", "type": "y", "param": null, "code": null}}\n\n'
LEAVES = Manner(leave_after_bytes=0)


def test_right_answers_are_right() -> None:
    assert _wrong(_answer(_whole("abc")), stream=False) == []
    assert _wrong(_answer(_stream("a", "bc") + b"data: [DONE]\n\n"), stream=True) == []
    part = _answer(_stream("a", "b") + b'data: {"choi', whole=False)
    assert _wrong(part, stream=True, manner=LEAVES) == []
    assert _wrong(_answer(_stream("ab") + ERROR), stream=True, killed=True) == []


def test_wrong_answers_are_noticed() -> None:
    assert _wrong(_answer(_whole("abx")), stream=False)
    assert _wrong(_answer(_whole("abc", "stop")), stream=False)
    assert _wrong(_answer(_stream("a", "b")), stream=True)
    assert _wrong(_answer(_stream("a", "bc", end="stop")), stream=True)
    assert _wrong(_answer(_stream("b"), whole=False), stream=True, manner=LEAVES)
    assert _wrong(_answer(_stream("b") + ERROR), stream=True, killed=True)
    assert _wrong(_answer(_stream("ab") + ERROR), stream=True)
    assert _wrong(_answer(_stream("ab"), whole=False), stream=True)  # nobody left
    assert _wrong(_answer(b"", status=500), stream=True)
    assert _wrong(_answer(b'{"error": {"detail": 1}}', status=500), stream=True, killed=True)


def test_growth_is_after_the_warm_up() -> None:
    found = memory({10: (1.0, 5.0), 20: (10.0, 20.0), 50: (11.0, 19.0), 100: (10.5, 20.0)})
    assert (found["api_growth_percent"], found["engine_growth_percent"]) == (10.0, 0.0)
