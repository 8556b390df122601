"""What an answer has: its form, sums, echo, offsets, a choice for each prompt, embeddings."""

import json
from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Capabilities, Property, demand
from paged_conformance.server.answers import Choice
from paged_conformance.server.client import PATHS
from paged_conformance.server.compare import confirmed, said
from paged_conformance.server.probe import Target
from paged_conformance.server.requests import apis, requests, texts
from paged_conformance.server.streams import FINISHES, _num_prompts


def check_form(make: Target, example: Any) -> None:
    """The body's own fields, and that its numbers add up."""
    client, what = make(), said(example)
    answer = client.ask(example)
    body = answer.raw[0]
    kind = {"completions": "text_completion", "chat": "chat.completion"}[example["api"]]
    demand(body.get("object") == kind, f"object is {body.get('object')!r}, not {kind}: {what}")
    for name, of in (("id", str), ("model", str), ("created", int)):
        demand(isinstance(body.get(name), of), f"{name} is {body.get(name)!r}: {what}")
    asked = example["body"].get("n", 1) * _num_prompts(example)
    indexes = [raw["index"] for raw in body["choices"]]
    demand(sorted(indexes) == list(range(asked)), f"choices {indexes}, of {asked}: {what}")
    for choice in answer.choices.values():
        demand(choice.finish in FINISHES, f"it ends by {choice.finish!r}: {what}")
        role = choice.role in (
            "assistant",
            None if example["api"] == "completions" else "assistant",
        )
        demand(role, f"the role is {choice.role!r}: {what}")
        _check_lists(choice, what)
    _check_usage(example, body.get("usage"), asked, what)


def _check_usage(example: Any, usage: Any, asked: int, what: str) -> None:
    if usage is None:
        return
    of, to = usage["prompt_tokens"], usage["completion_tokens"]
    demand(usage["total_tokens"] == of + to, f"the usage does not add up: {usage}: {what}")
    most = asked * example["body"]["max_tokens"]
    demand(0 <= to <= most and of >= 0, f"the usage is {usage}, at most {most} completed: {what}")
    least = asked * example["body"].get("min_tokens", 0)
    demand(to >= least, f"the usage is {usage}, at least {least} completed: {what}")
    prompt = example["body"].get("prompt")
    if isinstance(prompt, list) and isinstance(prompt[0], int):
        beginning = 1  # a token that the server may put before each prompt
        right = len(prompt) <= of <= asked * (len(prompt) + beginning)
        demand(right, f"{of} tokens of a prompt of {len(prompt)}: {what}")


def _check_lists(choice: Choice, what: str) -> None:
    """Log-probabilities: as many of each kind, none above zero, offsets where the text has them."""
    sizes = {len(choice.tokens), len(choice.logprobs)}
    sizes |= {len(each) for each in (choice.tops, choice.offsets) if each}
    demand(len(sizes) == 1, f"lists of {sorted(sizes)} log-probabilities: {choice}: {what}")
    for number in choice.logprobs:
        demand(number is None or number <= 1e-4, f"a log-probability of {number}: {what}")
    if not choice.offsets:
        return
    demand(choice.offsets == sorted(choice.offsets), f"offsets {choice.offsets}: {what}")
    joined = ""
    for place, token in enumerate(choice.tokens):
        # A token that the text does not show, or not by itself, ends what can be known.
        if not (token and token.isascii() and choice.text.startswith(joined + token)):
            break
        at = choice.offsets[place] - choice.offsets[0]
        demand(
            at == len(joined),
            f"token {place}, {token!r}, is {at} characters behind the first one, and the text has "
            f"{len(joined)} before it: {choice.tokens}, {choice.offsets}, {choice.text!r}: {what}",
        )
        joined += token


def _echoed(has: Capabilities) -> st.SearchStrategy[Any]:
    request = requests(has, "completions", samples=False, whole=False)
    return st.fixed_dictionaries({"request": request, "prompt": texts()})


def check_echo(make: Target, example: Any) -> None:
    """The prompt, and behind it the answer without an echo."""
    client = make()
    body = example["request"]["body"] | {"prompt": example["prompt"]}
    body.pop("return_token_ids", None)  # the ids may stand for the prompt's text
    request = {"api": "completions", "body": body}

    def check() -> None:
        plain = client.ask(request).first
        echoed = {"api": "completions", "body": body | {"echo": True}}
        choice = client.ask(echoed, must="prompt_logprobs" not in body).first
        again = client.ask(request, must=True).first
        expected = example["prompt"] + plain.text
        if again.text == plain.text and "\ufffd" not in plain.text:
            demand(choice.text == expected, f"{choice.text!r}, not {expected!r}: {said(echoed)}")
        _check_lists(choice, said(echoed))
        if plain.tokens and again.tokens == plain.tokens:
            tail = choice.tokens[-len(plain.tokens) :]
            demand(
                tail == plain.tokens, f"tokens {tail}, without echo {plain.tokens}: {said(echoed)}"
            )

    confirmed(check)


def _listed(has: Capabilities) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "prompts": st.lists(texts(), min_size=2, max_size=4),
            "tokens": st.integers(1, has.sizes.get("tokens", 16)),
        }
    )


def check_list(make: Target, example: Any) -> None:
    """Each prompt of a list gets the choices that it gets by itself, in order."""
    client = make()
    body = {"max_tokens": example["tokens"], "temperature": 0}

    def check() -> None:
        alone = [
            client.ask({"api": "completions", "body": body | {"prompt": prompt}}).first.text
            for prompt in example["prompts"]
        ]
        request = {"api": "completions", "body": body | {"prompt": example["prompts"]}}
        answer = client.ask(request, must=True)
        found = [answer.choices[index].text for index in sorted(answer.choices)]
        demand(found == alone, f"{found}, one by one {alone}: {said(request)}")

    confirmed(check)


def check_embeddings(make: Target, example: Any) -> None:
    """A list's vectors are those of each text by itself, in order."""
    client = make()
    asked = [*example["texts"], example["texts"]]
    found = []
    for text in asked:
        reply = client.post("/embeddings", {"model": client.model, "input": text})
        demand(reply.status < 500, f"embeddings of {text!r}: {reply.status} {reply.short()}")
        if reply.status != 200:
            return
        found.append([one["embedding"] for one in reply.json()["data"]])
    whole = found.pop()
    demand(len(whole) == len(found), f"{len(whole)} vectors of {len(found)} texts: {asked[-1]}")
    for place, (one, (other,)) in enumerate(zip(whole, found, strict=True)):
        scale = max(map(abs, other)) or 1.0
        far = max(abs(a - b) for a, b in zip(one, other, strict=True)) / scale
        demand(far < 0.05, f"vector {place} differs by {far:.3g} in the list {asked[-1]}")


def check_types(make: Target, example: Any) -> None:
    """JSON is called JSON, for answers and for errors."""
    client = make()
    reply = client.post(PATHS[example["api"]], client.body(example))
    kind = reply.headers.get("content-type", "")
    demand(kind.startswith("application/json"), f"the content type is {kind!r}: {said(example)}")
    demand(reply.json() is not None, f"the body is no JSON: {reply.short()}: {said(example)}")
    stranger = client.body(example, model="no such model, surely")
    reply = client.post(PATHS[example["api"]], stranger)
    demand(reply.status < 500, f"{json.dumps(stranger)} got {reply.status}: {reply.short()}")


def _any(has: Capabilities) -> st.SearchStrategy[Any]:
    return st.sampled_from(apis(has)).flatmap(lambda api: requests(has, api))


PROPERTIES = (
    Property(
        "answer-form",
        "An answer has its fields, a choice for each sample of each prompt, a reason of each end, "
        "log-probabilities and offsets that fit, and a usage that adds up.",
        _any,
        check_form,
        invariant="I51",
    ),
    Property(
        "answer-type",
        "Answers are JSON, and say so; a model that is not there is an error.",
        _any,
        check_types,
    ),
    Property(
        "echo",
        "An echo is the prompt and then the answer without an echo, with offsets of both.",
        _echoed,
        check_echo,
        needs=("completions", "echo"),
    ),
    Property(
        "prompt-lists",
        "A list of prompts gets the answers of each by itself, in order.",
        _listed,
        check_list,
        invariant="I51",
        needs=("prompt-lists",),
    ),
    Property(
        "embeddings",
        "A list of texts gets the embeddings of each by itself, in order.",
        lambda has: st.fixed_dictionaries({"texts": st.lists(texts(), min_size=2, max_size=4)}),
        check_embeddings,
        needs=("embeddings",),
    ),
)
