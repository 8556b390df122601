"""What users of other servers have reported of guesses beside grammars, calls and thoughts.

The right answer is that of a server without guesses, asked for one thing at a time. The server,
its messages and its engine are real; the model is tiny and random, so its thoughts end and its
calls begin by a bias for their markers.
"""

import functools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from jax_engine import LLMEngine
from tests.serving.tools.conftest import TEMPLATE
from tests.serving.tools.test_chat_pairs import comparable, joined
from tests.support.app_in_threads import app_in_threads
from tests.support.drafters import Guess, perfect, speculation, unruly
from tests.support.scripted_app import events
from tests.support.speaking import (
    BLOCK,
    CALL,
    CALLED,
    EOS,
    MAX_LEN,
    MAX_SEQS,
    THINK,
    THOUGHT,
    VOCAB,
    checkpoint,
    followed_by,
    speaking_engine,
)

PATH = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "f", "schema": SCHEMA, "strict": True}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
OTHER = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
THINKS = {"chat_template_kwargs": {"think": True}, "logit_bias": {str(THOUGHT): 7}}
CALLS = {"tools": [TOOL, OTHER], "logit_bias": {str(CALL): 6}}
LIMIT = 6
LIMITED = {"chat_template_kwargs": {"think": True}, "thinking_token_budget": LIMIT}
TAGS = {
    "type": "structural_tag", "triggers": ["q"],
    "structures": [{"begin": "qa", "schema": {"enum": [1, 22]}, "end": "z"}],
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "a schema": {"response_format": FORM},
    "a schema and penalties": {
        "response_format": FORM, "presence_penalty": 0.5, "frequency_penalty": 0.3,
        "repetition_penalty": 1.2,
    },
    "an object": {"response_format": {"type": "json_object"}},
    "a regex": {"structured_outputs": {"regex": "(ab|bca){3,9}"}},
    "a choice": {"structured_outputs": {"choice": ["hello", "help me", "helpers"]}},
    "a grammar": {"structured_outputs": {"grammar": 'start: "x" ("ab" | /[0-9]{2}/)+ "y"'}},
    "a thought": THINKS,
    "a thought before a schema": THINKS | {"response_format": FORM},
    "a thought before a regex": THINKS | {"structured_outputs": {"regex": "(ab|bca){3,9}"}},
    "a thought before a call": THINKS | {"tools": [TOOL], "tool_choice": "required"},
    "a thought that is not shown": THINKS | {"response_format": FORM, "include_reasoning": False},
    "a limited thought": LIMITED,
    "a limited thought before a schema": LIMITED | {"response_format": FORM},
    "samples of a limited thought": LIMITED | {"n": 3},
    "tagged parts": {"response_format": TAGS, "logit_bias": {str(ord("q")): 6}},
    "samples of tagged parts": {
        "response_format": TAGS, "n": 3, "logit_bias": {str(ord("q")): 6},
    },
    "a call": {"tools": [TOOL, OTHER], "tool_choice": "required"},
    "a named call": {
        "tools": [TOOL, OTHER], "tool_choice": {"type": "function", "function": {"name": "f"}},
    },
    "a call or none": CALLS,
    "one call or none": CALLS | {"parallel_tool_calls": False},
    "a call or a schema": CALLS | {"response_format": FORM},
    "a stop in a schema": {"response_format": FORM, "stop": ['"b"', "9", ": "]},
    "a stop in a thought": THINKS | {"stop": ["a", "e", "o"]},
    "a stop token": {"response_format": FORM, "stop_token_ids": [ord(":"), ord("9")]},
    "a limit in a schema": {"response_format": FORM, "max_tokens": 7},
    "log-probabilities": {"response_format": FORM, "logprobs": True, "top_logprobs": 2},
    "samples": {"response_format": FORM, "n": 3},
    "bad words": {"structured_outputs": {"regex": "[ab]{9,20}"}, "bad_words": ["abb", "bbb"]},
    "nothing that is allowed": {
        "structured_outputs": {"regex": "[ab]{9,20}"}, "bad_words": ["ab", "baa"],
    },
    "nothing": {}, "greedy": {"temperature": 0},
}  # fmt: skip


# White space is dull, and a thought begins where its prompt says so.
DULL: dict[str, float] = dict.fromkeys([*(str(ord(one)) for one in " \t\n\r"), str(THINK)], -9)


def bodies() -> list[tuple[str, dict[str, Any]]]:
    """Each with a name and two seeds."""
    found = []
    for name, body in BODIES.items():
        for seed in (1, 2):
            said = {"role": "user", "content": f"Say {name}."}
            plain = {"messages": [said], "seed": seed, "max_tokens": 60, "temperature": 1.0}
            bias = {"logit_bias": DULL | body.get("logit_bias", {})}
            found.append((f"{name}, {seed}", plain | {"return_token_ids": True} | body | bias))
    return found


class Guesses:
    """What the drafter of the server guesses; tests replace it."""

    guess: Guess = staticmethod(lambda tokens: [])


@contextmanager
def server(*, guesses: bool, ahead: bool) -> Iterator[TestClient]:
    """A server; others must have ended, since they share a model's memory."""
    config = speculation(lambda tokens: Guesses.guess(tokens)) if guesses else None

    def build(_: Any, place: Any) -> LLMEngine:
        return speaking_engine(config, ahead=ahead)

    served = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "chat_template": TEMPLATE}
    settings = {"block_size": BLOCK, "max_model_len": MAX_LEN, "max_num_seqs": MAX_SEQS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LLMEngine, "from_config", build)
        with app_in_threads(str(checkpoint()), served, **settings) as client:
            yield client


def ask(client: TestClient, body: dict[str, Any], *, stream: bool) -> Any:
    """What a stream adds up to is what an answer at once says."""
    if not stream:
        answer = client.post(PATH, json=body)
        assert answer.status_code == 200, answer.text
        return comparable(answer.json())
    more = {"stream": True, "stream_options": {"include_usage": True}}
    answer = client.post(PATH, json=body | more)
    assert answer.status_code == 200, answer.text
    assert '"error"' not in answer.text, answer.text
    return joined(events(answer.text))


def without_hits(answer: Any) -> Any:
    """Which prompts are cached depends on who came before."""
    usage = {k: v for k, v in answer["usage"].items() if k != "prompt_tokens_details"}
    return answer | {"usage": usage}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    with server(guesses=False, ahead=True) as client:
        return {name: without_hits(ask(client, body, stream=False)) for name, body in bodies()}


@pytest.fixture(scope="module", params=[True, False], ids=["ahead", "one by one"])
def client(expected: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[TestClient]:
    with server(guesses=True, ahead=request.param) as client:
        yield client


def right(expected: dict[str, Any]) -> Guess:
    texts = [
        [*answer["prompt"], *choice[-1]]
        for answer in expected.values()
        for choice in answer["choices"]
    ]
    return perfect(texts)


FENCE = list(b"```json\n")
DRAFTERS: dict[str, Any] = {
    "right": lambda right: right,
    "illegal": lambda right: followed_by(right, FENCE, 3),
    "markers": lambda right: followed_by(right, [THOUGHT, CALL, CALLED, EOS], 3),
    "unruly": lambda right: unruly(right, 5, VOCAB),
}


@pytest.mark.slow
def test_the_bodies_say_what_they_are_named_for(expected: dict[str, Any]) -> None:
    """Otherwise the tests below would compare nothing."""

    def of(name: str) -> list[Any]:
        return [
            c for key, a in expected.items() if key.startswith(f"{name}, ") for c in a["choices"]
        ]

    assert any(json.loads(one[1]).keys() == {"a", "b"} for one in of("a schema") if one[1])
    assert any(one[2] and one[1] for one in of("a thought before a schema"))
    assert any(one[2] and one[4] for one in of("a thought before a call"))
    assert all(one[4] for one in of("a call") if one[6] == "tool_calls")
    assert any(one[4] for one in of("a call or none"))
    assert {one[6] for one in of("a stop in a schema")} == {"stop"}
    for name in BODIES:
        # A grammar puts the end off to that of a character, of at most four bytes.
        most = LIMIT + 3 * ("schema" in name)
        assert "limited" not in name or all(len(one[2] or "") <= most for one in of(name)), name
    assert all(json.loads(one[1]) for one in of("a limited thought before a schema") if one[1])
    tagged = [one[1] or "" for one in of("tagged parts") + of("samples of tagged parts")]
    assert any("qa" in one for one in tagged)
    for text in tagged:
        for part in text.split("q")[1:-1]:
            assert re.fullmatch(r"a\s*-?[0-9]+\s*z[^q]*", part), text
    ends = {one[6] for answer in expected.values() for one in answer["choices"]}
    assert ends == {"stop", "length", "tool_calls", "abort"}


@pytest.mark.slow
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_answers_are_those_without_guesses_however_many_are_asked_for(
    drafter: str, client: TestClient, expected: dict[str, Any]
) -> None:
    """vllm#49694, #52620, #44006, #51660: with grammars and guesses, requests failed with status
    500 or were cut, more of them the more there were at once. vllm#31858, #34650, #48228: behind
    a thought that ended within guesses, a grammar was not heeded, or its first token was doubled.
    sglang#24283, #9187, PR#21723: a grammar ended the server, or was not noticed to have ended."""
    Guesses.guess = DRAFTERS[drafter](right(expected))
    for at_once in (1, 4, MAX_SEQS):
        ask_one = functools.partial(answer_to, client, at_once)
        with ThreadPoolExecutor(at_once) as pool:
            for name, found in pool.map(ask_one, range(len(bodies()))):
                assert found == expected[name], (name, at_once)
    assert client.get("/health").status_code == 200


def answer_to(client: TestClient, at_once: int, place: int) -> tuple[str, Any]:
    """Every other one is a stream."""
    name, body = bodies()[place]
    return name, without_hits(ask(client, body, stream=(place + at_once) % 2 == 0))


ENDS = {"max_tokens": 40, "temperature": 1.0, "seed": 5}
PLAIN_TEXT = {"structured_outputs": {"regex": "[a-z]{9,30}"}}
ELSEWHERE: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", ENDS | PLAIN_TEXT | {"prompt": "Go on", "logprobs": 2, "echo": True}),
    ("/v1/completions", ENDS | PLAIN_TEXT | {"prompt": ["Go on", "and on"], "n": 2, "stop": "e"}),
    ("/v1/responses", {
        "input": "Say it", "max_output_tokens": 60, "seed": 5, "temperature": 1.0,
        "logit_bias": DULL,
        "text": {"format": {"type": "json_schema", "name": "f", "schema": SCHEMA, "strict": True}},
    }),
    ("/v1/responses", {
        "input": "Say it", "max_output_tokens": 90, "seed": 6, "temperature": 1.0,
        "logit_bias": DULL | THINKS["logit_bias"], "tool_choice": "required",
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}],
    }),
    ("/v1/messages", {
        "model": "tiny", "messages": [{"role": "user", "content": "Call"}], "max_tokens": 90,
        "tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"},
        "temperature": 0.0,
    }),
]  # fmt: skip
OF_THEIR_TIME = {"id", "call_id", "item_id", "created", "created_at", "completed_at", "request_id"}


def timeless(value: Any) -> Any:
    """What an answer says, without what names it, and without what was cached."""
    if isinstance(value, list):
        return [timeless(one) for one in value]
    if isinstance(value, dict):
        cached = {"cached_tokens", "cache_read_input_tokens", "input_tokens"}
        dropped = OF_THEIR_TIME | cached
        return {name: timeless(one) for name, one in value.items() if name not in dropped}
    return value


def streamed(client: TestClient, path: str, body: dict[str, Any]) -> Any:
    """What the events of a stream add up to, as far as other tests compare it with an answer."""
    text = client.post(path, json=body | {"stream": True}).text
    data = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    events = [json.loads(one) for one in data]
    assert events and all(one.get("type") != "error" and "error" not in one for one in events[:-1])
    if path == "/v1/responses":
        return timeless(events[-1]["response"])
    if path == "/v1/messages":
        deltas = [one["delta"] for one in events if "delta" in one]
        return timeless([
            "".join(one.get("text", "") + one.get("partial_json", "") for one in deltas),
            [one for one in deltas if "stop_reason" in one],
        ])  # fmt: skip
    choices: dict[int, list[Any]] = {}
    for event in events:
        for one in event["choices"]:
            said = choices.setdefault(one["index"], ["", [], None])
            said[0] += one["text"]
            logprobs = one["logprobs"] or {}
            said[1] += zip(*(logprobs[name] for name in sorted(logprobs)), strict=True)
            said[2] = one["finish_reason"] or said[2]
    return choices


def elsewhere(client: TestClient, at_once: int) -> list[Any]:
    def both(place: int) -> Any:
        path, body = ELSEWHERE[place % len(ELSEWHERE)]
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return timeless(answer.json()), streamed(client, path, body)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(both, range(max(at_once, len(ELSEWHERE)))))


@pytest.mark.slow
def test_the_other_apis_say_what_they_say_without_guesses(expected: dict[str, Any]) -> None:
    """Their events may have several tokens of a thought, a call and an answer, and the end."""
    with server(guesses=False, ahead=True) as client:
        plain = elsewhere(client, 1)
    texts = [dict(enumerate(json.dumps(one).encode())) for one in plain]
    assert all(len(one) > 100 for one in texts)
    for guess in (lambda tokens: list(b'{"a":'), lambda tokens: list(b"abcde")):
        Guesses.guess = guess
        with server(guesses=True, ahead=True) as client:
            for at_once in (1, 10):
                found = elsewhere(client, at_once)
                assert found == [plain[i % len(plain)] for i in range(len(found))]
            page = client.get("/metrics").text
            [count] = [
                float(line.rsplit(" ", 1)[1])
                for line in page.splitlines()
                if line.startswith("vllm:spec_decode_num_accepted_tokens_total")
            ]
            assert count > 0
