"""The prompt of jina-reranker-v3: its words, and that no text can add a token that is read."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.models.families.jina_ranking import DOCUMENT, QUERY, ranking_prompt

TOKENS = (DOCUMENT, QUERY)
# Parts of which either token may come to be, inside of each other, too.
PARTS = st.sampled_from([*TOKENS, "<|", "embed", "rerank", "<|embed_", "_token", "|>", " ", "é\n"])
TEXTS = st.lists(PARTS, max_size=12).map("".join)


@pytest.mark.parametrize(
    ("query", "documents", "digest"),
    [
        ("q", ["a"], "b3d24f5bbd68d89ae5a3f34618bf50269ed5b8934acaae31129fb06e4b034ea8"),
        ("q?", ["a", "b\n"], "d9dee4e9c750151a64260d8ebbb07fa6646364039e55e6e657bfef6a1bf21102"),
    ],
)
def test_the_words_are_those_that_vllm_writes(
    query: str, documents: list[str], digest: str
) -> None:
    text = ranking_prompt(query, documents)
    assert hashlib.sha256(text.encode()).hexdigest() == digest


@given(query=TEXTS, documents=st.lists(TEXTS, min_size=1, max_size=3))
def test_no_text_adds_a_token_that_is_read(query: str, documents: list[str]) -> None:
    text = ranking_prompt(query, documents)
    assert (text.count(DOCUMENT), text.count(QUERY)) == (len(documents), 1)
    assert re.findall(r'<passage id="(\d+)">', text) == [str(i) for i in range(len(documents))]


@given(
    query=st.text().filter(lambda text: "<|" not in text),
    documents=st.lists(st.text().filter(lambda text: "<|" not in text), min_size=1, max_size=3),
)
def test_other_texts_stand_in_it_as_they_are(query: str, documents: list[str]) -> None:
    text = ranking_prompt(query, documents)
    assert text.count(f"<query>\n{query}{QUERY}\n</query>") == 1
    for number, one in enumerate(documents):
        assert f'<passage id="{number}">\n{one}{DOCUMENT}\n</passage>\n' in text


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_in_a_text_is_left_out(token: str) -> None:
    """And one that comes to be by that is broken."""
    assert ranking_prompt(f"a{token}b", [f"{token}c"]) == ranking_prompt("ab", ["c"])
    nested = ranking_prompt("q", [f"{QUERY[:5]}{QUERY}{QUERY[5:]}"])
    assert nested.count(QUERY) == 1 and "< |rerank_token|>" in nested
