"""What clients are given through the messages of two processes is what the oracle says (I50, I51).

The cases and the random requests are those of `tests/properties/test_client_view.py`, where the
engine's own outputs are compared.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.test_client_view import CASES, POOLS, WORDS, beams, hold, requests
from tests.support.client_view import Asked
from tests.support.engine_pair import Pool
from tests.support.through_messages import serve_through_messages
from tests.support.tiny_llama import EOS, VOCAB
from tests.support.vocabularies import Words, words


@pytest.mark.parametrize("name", CASES)
def test_cases_by_hand(name: str) -> None:
    serve = serve_through_messages(WORDS.tokenizer)
    hold(Counter(), POOLS[0], WORDS, CASES[name], ahead=True, serve=serve)


@given(
    pool=st.sampled_from(POOLS),
    vocabulary=words(VOCAB, EOS),
    asked=st.lists(requests() | requests() | beams(), min_size=1, max_size=3),
    ahead=st.booleans(),
)
def test_clients_of_another_process_are_given_what_the_oracle_says(
    pool: Pool, vocabulary: Words, asked: list[Asked], ahead: bool
) -> None:
    serve = serve_through_messages(vocabulary.tokenizer)
    hold(Counter(), pool, vocabulary, asked, ahead=ahead, serve=serve)
