"""From tokens to text by hand: bytes, what is held back, spaces, stop strings."""

import codecs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reference.text import (
    REPLACEMENT,
    Vocabulary,
    byte_fallback,
    byte_level,
    certain,
    decode,
    find_stop,
    shown,
    utf8,
)

# Bytes that begin characters, go on with some of them only, or belong to none.
TELLING = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE2, 0xED, 0xEF]
TELLING += [0xF0, 0xF1, 0xF4, 0xF5, 0xFF]


@given(st.lists(st.sampled_from(TELLING), max_size=9).map(bytes))
@example(b"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80")
@example(b"\xf0\x8f\xf4\x90\xe0\x9f\xed\xa0")  # too short a form, beyond Unicode, surrogates
def test_characters_are_those_of_python(data: bytes) -> None:
    text, held = utf8(data)
    assert text + REPLACEMENT * bool(held) == data.decode("utf-8", "replace")
    assert data.endswith(held) and len(held) < 4
    if held:  # something makes it a character
        tails = [bytes([byte]) + b"\x80" * more for byte in (0x80, 0x90, 0xA0) for more in range(3)]
        assert any(_is_text(held + tail) for tail in tails)


def _is_text(data: bytes) -> bool:
    try:
        codecs.decode(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def test_each_byte_has_its_character_in_gpt_2_s_alphabet() -> None:
    """Printable ones are themselves; the first and last of the others have known places."""
    assert byte_level("!~¡¬®ÿ") == b"!~\xa1\xac\xae\xff"
    assert byte_level("\u0100\u0120\u0121\u0142\u0143") == b"\x00 \x7f\xa0\xad"
    assert byte_level("two words") == b"two words"  # a space is in no piece: it was added


@pytest.mark.parametrize(
    ("piece", "data"),
    [("<0x0A>", b"\n"), ("\u2581a\u2581", b" a "), ("<0x0A", b"<0x0A"), ("x<0x0A>", b"x<0x0A>")],
)
def test_pieces_of_sentencepiece(piece: str, data: bytes) -> None:
    assert byte_fallback(piece) == data


EURO = "€".encode()


def test_a_character_appears_with_the_token_that_settles_it() -> None:
    words = Vocabulary([EURO[:1], EURO[1:2], EURO[2:], b"x"])
    assert certain(words, [0, 1, 2, 3]) == ["", "", "", "€", "€x"]
    assert certain(words, [0, 1, 3, 0]) == ["", "", "", "\ufffdx", "\ufffdx"]
    assert certain(words, [0, 1, 3, 0], over=True)[-1] == "\ufffdx\ufffd"
    assert certain(words, [2, 2]) == ["", "\ufffd", "\ufffd\ufffd"]
    assert certain(words, [], over=True) == [""]


def test_special_tokens_and_unknown_ids_stand_for_nothing() -> None:
    words = Vocabulary([b"a", b"<s>"], frozenset({1}))
    assert decode(words, [1, 0, 7, 1]) == "a"
    assert decode(words, [1, 0, 7, 1], skip_special_tokens=False) == "<s>a<s>"


def test_a_first_space_is_dropped_once_and_only_where_the_text_begins() -> None:
    words = Vocabulary([b" a", b" ", b"<s>"], frozenset({2}), strips_first_space=True)
    assert certain(words, [2, 1, 0]) == ["", "", "", " a"]
    assert decode(words, [0, 0]) == "a a"
    assert decode(words, [0, 0], behind_prompt=True) == " a a"
    kept = Vocabulary([b" a"])
    assert decode(kept, [0]) == " a"


def test_the_first_character_that_completes_a_stop_string_ends_the_text() -> None:
    texts = ["", "ab", "abcab", "abcabc!"]
    assert find_stop(texts, []) is None
    assert find_stop(texts, ["x"]) is None
    first = find_stop(texts, ["ca", "bca"])
    assert first is not None and (first.string, first.start, first.num_tokens) == ("bca", 1, 2)
    earlier = find_stop(texts, ["bca", "c"])
    assert earlier is not None and earlier.string == "c"


def test_what_min_tokens_complete_is_text_and_may_begin_a_stop_string() -> None:
    texts = ["", "aba", "ababa", "ababab"]
    late = find_stop(texts, ["aba"], 1)
    assert late is not None and (late.start, late.num_tokens) == (2, 2)
    assert find_stop(texts, ["aba"], 2) is None
    begun = find_stop(texts, ["bab"], 2)
    assert begun is not None and (begun.start, begun.num_tokens) == (3, 3)


def test_the_longest_beginning_of_a_stop_string_is_held_back() -> None:
    assert shown("xaab", ["aabb", "bc"]) == "x"
    assert shown("xab", ["b"]) == "xab"  # complete, so it did not count: nothing begins
    assert shown("xab", []) == "xab"
    assert shown("xab", ["ab", "abc"]) == "x"
