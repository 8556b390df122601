"""Two options of a chat together: a stream adds up to the answer at once, reasoning, calls, log-
probabilities and counts included."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_app import events, named_events, scripted_app

THOUGHT, CONTENT = "Two words", "Hi, you"
CALL = '<tool_call>\n{"name": "find_it", "arguments": {"a": 1}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "find_it", "parameters": {"type": "object"}}}
SAY = [{"role": "user", "content": "x"}]
OPTIONS: dict[str, dict[str, Any]] = {
    "n": {"n": 2},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "no reasoning": {"include_reasoning": False},
    "token ids": {"return_token_ids": True},
    "tools": {"tools": [TOOL]},
    "no tools": {"tools": [TOOL], "tool_choice": "none"},
    "limit": {"max_completion_tokens": 90},
    "older limit": {"max_tokens": 90},
    "effort": {"reasoning_effort": "low"},
}
PAIRS = [*itertools.combinations(OPTIONS, 2), *((one, one) for one in OPTIONS)]
TEXTS = {
    "reasons": f"<think>{THOUGHT}</think>\n\n{CONTENT}",
    "says": CONTENT,
    "calls": f"<think>{THOUGHT}</think>\n\n{CALL}",
}
USAGE = {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("pair", PAIRS, ids=" + ".join)
def test_two_options_together(pair: tuple[str, str], text: str, checkpoint: Path) -> None:
    parsers = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
    client, llm = scripted_app(checkpoint)(parsers, text=TEXTS[text], max_model_len=400)
    body = {"messages": SAY} | OPTIONS[pair[0]] | OPTIONS[pair[1]]
    whole = client.post("/v1/chat/completions", json=body).json()
    hold(body, whole, text)
    asked = llm.asked[0]
    for usage in ({"include_usage": True}, USAGE):
        more = {"stream": True, "stream_options": usage}
        added = client.post("/v1/chat/completions", json=body | more).text
        found = events(added)
        assert joined(found) == comparable(whole)
        told = [one["usage"] is not None for one in found[1:-1]]  # the first one names the roles
        assert told == [usage is USAGE] * len(told)
        assert llm.asked[-1][0] == asked[0]


def hold(body: dict[str, Any], answer: dict[str, Any], text: str) -> None:
    """What the request says of each choice, and of the sums."""
    n, tools = body.get("n", 1), "tools" in body and body.get("tool_choice") != "none"
    thinks, reads = text != "says", body.get("include_reasoning", True)
    assert [one["index"] for one in answer["choices"]] == list(range(n))
    for choice in answer["choices"]:
        message = choice["message"]
        assert message.get("reasoning") == (THOUGHT if thinks and reads else None)
        if text == "calls" and tools:
            [call] = message["tool_calls"]
            assert call["function"] == {"name": "find_it", "arguments": '{"a": 1}'}
            assert message["content"] is None and choice["finish_reason"] == "tool_calls"
        else:
            assert message["content"] == (CALL if text == "calls" else CONTENT)
            assert not message.get("tool_calls") and choice["finish_reason"] == "stop"
        count = len(TEXTS[text].encode())
        if body.get("logprobs"):
            entries = choice["logprobs"]["content"]
            assert len(entries) == count
            assert all(len(one["top_logprobs"]) == 2 for one in entries)
        else:
            assert choice["logprobs"] is None
        wanted = "return_token_ids" in body
        assert choice["token_ids"] is None or len(choice["token_ids"]) == count
        assert (choice["token_ids"] is not None) == wanted
    assert (answer["prompt_token_ids"] is not None) == ("return_token_ids" in body)
    usage = answer["usage"]
    assert usage["completion_tokens"] == n * len(TEXTS[text].encode())
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    details = usage.get("completion_tokens_details")
    said = thinks and reads
    assert details == ({"reasoning_tokens": n * len(THOUGHT)} if said else None)


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """What a stream must add up to; ids of calls are new each time."""
    found: dict[str, Any] = {"usage": answer["usage"], "choices": []}
    for one in answer["choices"]:
        message = one["message"]
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        content = message["content"] or ""
        said = content, message.get("reasoning") or "", message.get("reasoning_content") or ""
        entries = None if one["logprobs"] is None else one["logprobs"]["content"]
        ends = one["finish_reason"], one["stop_reason"]
        found["choices"].append((one["index"], *said, calls, entries, *ends, one.get("token_ids")))
    return found | {"prompt": answer.get("prompt_token_ids")}


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The same of a stream's events."""
    choices: dict[int, dict[str, Any]] = {}
    prompt = None
    for event in events:
        prompt = event.get("prompt_token_ids", prompt)
        for one in event["choices"]:
            found = choices.setdefault(one["index"], {
                "content": "", "reasoning": "", "reasoning_content": "", "calls": {},
                "logprobs": None, "ids": None,
            })  # fmt: skip
            for name in ("content", "reasoning", "reasoning_content"):
                found[name] += one["delta"].get(name) or ""
            for call in one["delta"].get("tool_calls") or ():
                own = found["calls"].setdefault(call["index"], {"name": "", "arguments": ""})
                for name in own:
                    own[name] += call["function"].get(name) or ""
            if one.get("logprobs") is not None:
                found["logprobs"] = (found["logprobs"] or []) + one["logprobs"]["content"]
            if "token_ids" in one:
                found["ids"] = (found["ids"] or []) + one["token_ids"]
            found |= {name: one.get(name) for name in ("finish_reason", "stop_reason")}
    return {
        "usage": events[-1]["usage"],
        "choices": [
            (
                index, one["content"], one["reasoning"], one["reasoning_content"],
                list(one["calls"].values()), one["logprobs"], one["finish_reason"],
                one["stop_reason"], one["ids"],
            )
            for index, one in sorted(choices.items())
        ],
        "prompt": prompt,
    }  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_what_other_apis_stream_is_what_they_say_at_once(
    path: str, text: str, checkpoint: Path
) -> None:
    parsers = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
    client, _ = scripted_app(checkpoint)(parsers, text=TEXTS[text], max_model_len=400)
    tool: dict[str, Any] = {"name": "find_it"}
    if path == "/v1/responses":
        tool |= {"type": "function", "parameters": {"type": "object"}}
        body: dict[str, Any] = {"input": "x", "tools": [tool]}
        last = named_events(client.post(path, json=body | {"stream": True}).text)[-1]["response"]
        whole = client.post(path, json=body).json()
        assert kinds(last["output"]) == kinds(whole["output"])
        assert last["usage"] == whole["usage"]
    else:
        tool["input_schema"] = {"type": "object"}
        body = {"model": "tiny", "messages": SAY, "max_tokens": 90, "tools": [tool]}
        events = named_events(client.post(path, json=body | {"stream": True}).text)
        whole = client.post(path, json=body).json()
        begun = [one["content_block"]["type"] for one in events if "content_block" in one]
        assert begun == [one["type"] for one in whole["content"]]
        [end] = [one for one in events if one["type"] == "message_delta"]
        assert end["delta"]["stop_reason"] == whole["stop_reason"]
        assert end["usage"] == whole["usage"]
        texts = "".join(one["delta"].get("text", "") for one in events if "delta" in one)
        assert texts == "".join(one.get("text", "") for one in whole["content"])
        thoughts = "".join(one["delta"].get("thinking", "") for one in events if "delta" in one)
        assert thoughts == "".join(one.get("thinking", "") for one in whole["content"])


def kinds(items: list[dict[str, Any]]) -> list[Any]:
    """Items without their ids."""
    return [{k: v for k, v in one.items() if k not in ("id", "call_id")} for one in items]
