"""Patterns match as `re` matches, and never take long."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError
from jax_engine.lora.peft_config import matches, matches_end

LEAVES = st.sampled_from(
    [
        "a", "b", r"\.", ".", "[ab]", "[^a]", "[^.]", "[^a.]", r"[^\d]", r"\d", r"[\w]", r"\b", "^",
        "$", "0", "[0-9]",
    ]
)  # fmt: skip


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{0,3}", "{2,}"])
    repeated = st.tuples(inner, repeats).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    either = st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})")
    return repeated | either | st.lists(inner, min_size=1, max_size=3).map("".join)


PATTERNS = st.recursive(LEAVES, _larger, max_leaves=8)
NAMES = st.text("ab.01", max_size=8)
NAME = "model.layers.11.self_attn.q_proj"


@given(PATTERNS, NAMES)
@example("(?:(a|b)*?){2,}", "ab")
@example("(?:){2}", "")
@example("(?:^a|b){0,3}", "ab")
def test_whole_names_match_as_in_re(pattern: str, name: str) -> None:
    assert matches(pattern, name, "f") == (re.fullmatch(pattern, name) is not None)


@given(PATTERNS, NAMES)
@example("a|b.a", "0.b.a")
@example("^b", "a.b")
def test_ends_of_names_match_as_in_peft(pattern: str, name: str) -> None:
    wanted = re.match(rf"(.*\.)?({pattern})$", name) is not None
    assert matches_end(pattern, name, "f") == wanted


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("(a+)+b", "a" * 60),
        ("(a|a)*b", "a" * 60),
        ("(.*)*(.*)*(.*)*(.*)*x", "a.b" * 20),
        (".*" * 40 + "x", "a" * 60),
        ("((((((((a*)*)*)*)*)*)*)*)*b", "a" * 60),
        ("(?:(?:){100000000}a){90000000}", "a" * 60),
        ("(a|a)" * 60 + "b", "a" * 60),
    ],
)
def test_patterns_that_re_would_never_finish(pattern: str, name: str) -> None:
    assert not matches(pattern, name, "f")
    assert not matches_end(pattern, name, "f")


def test_a_pattern_that_unsloth_writes() -> None:
    pattern = (
        r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|k_proj).*?)|"
        r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|k_proj)))"
    )
    assert matches(pattern, NAME, "f") and not matches(pattern, NAME.replace("q_", "o_"), "f")


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("(a", "unterminated"),
        (r"(a)\1", "groupref is not supported"),
        ("(?=m).*", "assert is not supported"),
        ("(?i:m).*", "flags"),
        ("(?i)m.*", "flags"),
        ("(" * 5000 + "a" + ")" * 5000, "nested too deeply"),
        ("a" * 20_000, "20000 characters, at most 16384"),
        ("a{99999999999999999999}", "overflow|too large"),
    ],
)
def test_patterns_that_are_refused(pattern: str, what: str) -> None:
    for check in (matches, matches_end):
        if check is matches_end and pattern.isalpha():
            continue  # it is plain text
        with pytest.raises(ConfigError, match=rf"rank_pattern: .* not a supported.*({what})"):
            check(pattern, "model", "rank_pattern")


def test_a_group_that_only_the_prefix_would_close_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a supported pattern"):
        matches_end("a)|(b", "a", "rank_pattern")
