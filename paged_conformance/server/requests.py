"""Draws requests that are in order, and that a server's capabilities suit."""

from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Capabilities

WORDS = (
    "one",
    "two",
    "three",
    "river",
    "stone",
    "green",
    "of",
    "the",
    "and",
    "a",
    "Paris",
    "42",
    ".",
)
# Many prompts begin alike, so that a prefix cache is used in all lengths.
PREFIX = [WORDS[(7 * place + place // 5) % len(WORDS)] for place in range(80)]
LETTERS = 'aZ 0é漢字🙂👩‍🚀שע\n\t"\\{}<|>\u0301'


def texts() -> st.SearchStrategy[str]:
    """Short texts, texts that begin alike, and letters of many scripts."""
    words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
    shared = st.builds(
        lambda length, end: " ".join([*PREFIX[:length], end]), st.integers(1, len(PREFIX)), words
    )
    return st.one_of(words, shared, st.text(LETTERS, min_size=1, max_size=12))


def apis(has: Capabilities, *words: str) -> list[str]:
    """Endpoints that have all of these; a chat's words begin with "chat-"."""
    found = []
    for api, prefix in (("completions", ""), ("chat", "chat-")):
        if api in has and all(prefix + word in has for word in words):
            found.append(api)
    return found


@st.composite
def requests(
    draw: st.DrawFn,
    has: Capabilities,
    api: str,
    *,
    logprobs: bool | None = None,
    samples: bool = True,
    whole: bool = True,
) -> dict[str, Any]:
    """A greedy request.

    Args:
        logprobs: Whether it asks for them; None: either.
        samples: It may have a few prompts, and several samples of each if it may be drawn.
        whole: It may have options that shorten the answer, echo it or draw by chance. Greedy
            samples are none: servers may refuse them.
    """
    prefix = "" if api == "completions" else "chat-"
    body: dict[str, Any] = prompt(draw, has, api, lists=samples)
    body |= {"max_tokens": draw(st.integers(1, has.sizes.get("tokens", 16))), "temperature": 0}
    if f"{prefix}logprobs" in has and (draw(st.booleans()) if logprobs is None else logprobs):
        tops = draw(st.integers(2, 5))
        body |= {"logprobs": tops} if not prefix else {"logprobs": True, "top_logprobs": tops}
    if "ignore-eos" in has and draw(st.booleans()):
        body["ignore_eos"] = True
    if "token-ids" in has and draw(st.integers(0, 3)) == 0:
        body["return_token_ids"] = True
    if whole:
        _add_options(draw, has, api, body, samples=samples)
    wanted = ["usage"] if f"{prefix}stream-usage" in has and draw(st.booleans()) else []
    return {"api": api, "body": body, "ask": wanted}


def prompt(draw: st.DrawFn, has: Capabilities, api: str, *, lists: bool) -> dict[str, Any]:
    """`prompt` or `messages`."""
    if api == "chat":
        roles = draw(st.sampled_from([["user"], ["system", "user"], ["user", "assistant", "user"]]))
        return {"messages": [{"role": role, "content": draw(texts())} for role in roles]}
    kinds: list[st.SearchStrategy[Any]] = [texts()]
    if "token-prompts" in has:
        kinds.append(st.lists(st.integers(3, 60), min_size=1, max_size=40))
    if lists and "prompt-lists" in has:
        kinds.append(st.lists(texts(), min_size=1, max_size=3))
    return {"prompt": draw(st.one_of(kinds))}


def _add_options(
    draw: st.DrawFn, has: Capabilities, api: str, body: dict[str, Any], *, samples: bool
) -> None:
    prefix = "" if api == "completions" else "chat-"
    if api == "completions" and "echo" in has and draw(st.integers(0, 2)) == 0:
        body["echo"] = True
    if draw(st.integers(0, 3)) == 0:
        body["stop"] = draw(
            st.lists(
                st.sampled_from([*"aeiou ", "th", "he ", "\n"]), min_size=1, max_size=3, unique=True
            )
        )
        if "include-stop" in has and draw(st.booleans()):
            body["include_stop_str_in_output"] = True
    if "min-tokens" in has and draw(st.integers(0, 3)) == 0:
        body["min_tokens"] = draw(st.integers(0, body["max_tokens"]))
    if "seeds" in has and draw(st.integers(0, 3)) == 0:
        body |= {"seed": draw(st.integers(0, 2**31 - 1)), "temperature": 1.0}
        if samples and f"{prefix}n" in has and draw(st.booleans()):
            body["n"] = draw(st.integers(2, 3))
