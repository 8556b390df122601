"""Two options of a completion together: each pair, whole and as a stream.

What must hold of an answer is worked out from its request, so a pair needs no expectation of its
own; and a stream adds up to the answer at once. The engine is real, but for its device.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from jax_engine import LLMEngine
from jax_engine.processes.placement import Place
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.support.app_in_threads import app_in_threads
from tests.support.builders import small_engine
from tests.support.byte_tokenizer import save_letter_tokenizer
from tests.support.scripted_app import events
from tests.support.strategies import EOS, VOCABULARY

PLAIN: dict[str, Any] = {
    "prompt": "ABBAABAB", "seed": 7, "max_tokens": 6, "temperature": 2.0, "ignore_eos": True,
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "n": {"n": 2},
    "best_of": {"best_of": 3},
    "beams": {"use_beam_search": True, "n": 3, "temperature": 0.0, "ignore_eos": False},
    "two prompts": {"prompt": ["ABBAABAB", "BAB"]},
    "token ids": {"prompt": [0, 1, 1, 0, 1]},
    "echo": {"echo": True},
    "echo alone": {"echo": True, "max_tokens": 0},
    "truncation": {"truncate_prompt_tokens": 3},
    "logprobs": {"logprobs": 2},
    "prompt_logprobs": {"prompt_logprobs": 1},
    "token ids back": {"return_token_ids": True},
    "stop": {"stop": ["BB"]},
    "stop, told": {"stop": ["AB"], "include_stop_str_in_output": True},
    "end": {"ignore_eos": False, "max_tokens": 20},
    "special": {"skip_special_tokens": False, "stop_token_ids": [EOS]},
    "one token": {"max_tokens": 1},
    "cache_salt": {"cache_salt": "mine"},
}
PAIRS = [*itertools.combinations(OPTIONS, 2), *((one, one) for one in OPTIONS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("letters")
    save_letter_tokenizer(path, VOCABULARY, EOS)
    return path


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    def build(config: Any, place: Place) -> LLMEngine:
        engine = small_engine()
        engine.memory = SimpleNamespace(num_blocks=40)  # type: ignore[assignment]
        return engine

    settings: dict[str, Any] = {"tokenizer": str(folder), "block_size": 4, "max_model_len": 40}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LLMEngine, "from_config", build)
        with app_in_threads("stub", **settings) as client:
            yield client


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


def body_of(pair: tuple[str, str]) -> dict[str, Any]:
    return PLAIN | OPTIONS[pair[0]] | OPTIONS[pair[1]]


@pytest.mark.parametrize("pair", PAIRS, ids=" + ".join)
def test_two_options_together(
    pair: tuple[str, str], client: TestClient, tokenizer: Tokenizer
) -> None:
    body = body_of(pair)
    whole = client.post("/v1/completions", json=body)
    if whole.status_code != 200:
        error = whole.json()["error"]
        assert whole.status_code == 400 and error["param"] in body, error
        assert refused(body), error
        return
    assert not refused(body)
    hold(body, whole.json(), tokenizer)
    if body.get("best_of", 1) > body.get("n", 1) or "prompt_logprobs" in body:
        return  # refused in a stream, as other tests say
    for usage in ({"include_usage": True}, {"continuous_usage_stats": True, "include_usage": True}):
        more = {"stream": True, "stream_options": usage}
        added = client.post("/v1/completions", json=body | more)
        assert added.status_code == 200, added.text
        found = events(added.text)
        assert all("usage" in one for one in found)
        assert joined(found, body) == comparable(whole.json())


def refused(body: dict[str, Any]) -> bool:
    """Whether the options contradict each other."""
    beams, n = body.get("use_beam_search", False), body.get("n", 1)
    return bool(
        (body.get("best_of") or n) < n
        or (body["max_tokens"] == 0 and not body.get("echo"))
        or (beams and (body.get("logprobs") or body.get("stop")))
        or (body["temperature"] == 0 and not beams and n > 1)
    )


def hold(body: dict[str, Any], answer: dict[str, Any], tokenizer: Tokenizer) -> None:
    """What the request says of each choice, of the prompts in it, and of the sums."""
    prompts = body["prompt"] if isinstance(body["prompt"][0], str) else [body["prompt"]]
    prompts = [body["prompt"]] if isinstance(body["prompt"], str) else prompts
    ids = [tokenizer.encode(one) if isinstance(one, str) else one for one in prompts]
    ids = [one[-body.get("truncate_prompt_tokens", len(one)) :] for one in ids]
    n, echo, none = body.get("n", 1), body.get("echo", False), body["max_tokens"] == 0
    choices = answer["choices"]
    assert [one["index"] for one in choices] == list(range(n * len(ids)))
    made = 0
    for choice in choices:
        own = ids[choice["index"] // n]
        before = tokenizer.decode(own) if echo else ""
        text = choice["text"].removeprefix(before)
        assert choice["text"].startswith(before)
        assert not (none and text)
        assert choice["finish_reason"] == ("length" if none else choice["finish_reason"])
        hold_end(body, choice, text)
        if "return_token_ids" in body:
            assert choice["prompt_token_ids"] == own
            tokens = choice["token_ids"]
            assert len(tokens) <= body["max_tokens"]
            full = choice["finish_reason"] != "length" or len(tokens) == body["max_tokens"]
            assert full or body.get("use_beam_search")
            made += len(tokens)
            if not body.get("stop") and not none:
                assert tokenizer.decode(tokens).startswith(text)
        if "logprobs" in body:
            hold_logprobs(body, choice, own, before)
        if "prompt_logprobs" in body:
            assert len(choice["prompt_logprobs"]) == len(own)
            assert choice["prompt_logprobs"][0] is None
    usage = answer["usage"]
    assert usage["prompt_tokens"] == sum(map(len, ids))
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] <= body["max_tokens"] * n * len(ids)
    if "return_token_ids" in body:
        assert usage["completion_tokens"] == made


def hold_end(body: dict[str, Any], choice: dict[str, Any], text: str) -> None:
    """How a choice ended."""
    reason, why = choice["finish_reason"], choice["stop_reason"]
    for stop in body.get("stop", ()):
        shown = body.get("include_stop_str_in_output", False)
        assert (stop in text) == (shown and why == stop)
    assert reason in ("stop", "length")
    if isinstance(why, str):
        assert reason == "stop" and why in body["stop"]
    if reason == "length":
        assert why is None


def hold_logprobs(
    body: dict[str, Any], choice: dict[str, Any], own: list[int], before: str
) -> None:
    """One entry for each token that the text has, and the places of their texts in it."""
    found = choice["logprobs"]
    count = len(own) if body.get("echo") else 0
    lengths = {len(found[name]) for name in ("tokens", "token_logprobs", "top_logprobs")}
    assert lengths == {len(found["text_offset"])}
    [length] = lengths
    assert count <= length <= count + body["max_tokens"]
    if "return_token_ids" in body:
        assert length == count + len(choice["token_ids"])
    if count:
        assert found["token_logprobs"][0] is None and found["text_offset"][0] == 0
        assert "".join(found["tokens"][:count]) == before
    assert found["text_offset"] == sorted(found["text_offset"])
    for value, top in list(zip(found["token_logprobs"], found["top_logprobs"], strict=True))[
        bool(count) :
    ]:
        assert value <= 0 and len(top) >= 2


# What a choice of a stream has even if it is null; an answer that comes at once has all fields.
ALWAYS = ("logprobs", "finish_reason", "stop_reason")


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """What a stream must add up to."""
    choices = [
        {name: value for name, value in one.items() if value is not None or name in ALWAYS}
        for one in answer["choices"]
    ]
    return {"usage": without_cache(answer["usage"]), "choices": choices}


def without_cache(usage: dict[str, Any]) -> dict[str, Any]:
    """Leaves out cache hits: a request that is asked again finds its prompt in the cache."""
    return {name: value for name, value in usage.items() if name != "prompt_tokens_details"}


def joined(stream: list[dict[str, Any]], body: dict[str, Any]) -> dict[str, Any]:
    """The answer that the events of a stream add up to."""
    found: dict[int, dict[str, Any]] = {}
    for event in stream:
        for one in event["choices"]:
            choice = found.setdefault(one["index"], {"index": one["index"], "text": ""})
            choice["text"] += one["text"]
            for name in ("finish_reason", "stop_reason"):
                choice[name] = one[name]
            if one.get("logprobs") is None:
                choice.setdefault("logprobs", None)
            else:
                sums = choice.setdefault("logprobs", {k: [] for k in one["logprobs"]})
                for name, values in one["logprobs"].items():
                    sums[name] += values
            if "token_ids" in one:
                choice["token_ids"] = choice.get("token_ids", []) + one["token_ids"]
            if "prompt_token_ids" in one:
                assert "prompt_token_ids" not in choice
                choice["prompt_token_ids"] = one["prompt_token_ids"]
    last = stream[-1]
    assert last["choices"] == [] and "stream_options" not in body
    return {"usage": without_cache(last["usage"]), "choices": [found[i] for i in sorted(found)]}
