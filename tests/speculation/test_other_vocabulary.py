"""A draft model with another vocabulary: what it guesses is the text that it draws.

The draft's model here recites: behind each prefix of a text it knows the next token, by what its
cache holds. So a token lost or doubled at a border, or a stale slot, makes it fall silent.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from jax_engine import SamplingParams
from jax_engine.engine.running_requests import request_setup
from jax_engine.speculation.draft_runner import DraftRunner, draft_setup
from jax_engine.speculation.drafter import CacheView, DraftRequest
from jax_engine.speculation.other_vocabulary import OtherVocabularyDrafter, Translation, Words
from jax_engine.step import Capabilities
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.support.other_words import Reciting
from tests.support.stub_runner import StubRunner

TEXT = (
    "The cat sat on the mat. The dog walked, and was walking when the cats sat down again.\n"
    "Straße, naïve, 東京 and 東京タワー: été 🙂🙂 again and again, 12345 67.\n"
) * 2
OTHER = "walk walking walked the then there cat sat sitting on again gain against 東 京 é 🙂 an and"


@functools.cache
def tokenizer(size: int, text: str = TEXT) -> Tokenizer:
    """A byte-level tokenizer of `size` tokens, learnt from a text; its last token ends a text."""
    backend = Backend(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([text] * 3, trainer)
    backend.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    return Tokenizer(backend, special_tokens={"eos_token": "<end>"})


TARGET, DRAFT = tokenizer(330), tokenizer(300, OTHER)


def reciting(texts: Sequence[str]) -> Any:
    return Reciting([([], DRAFT.encode(text)) for text in texts], DRAFT.vocab_size)


def make(
    texts: Sequence[str], *, num_blocks: int = 400, max_len: int = 800, budget: int = 2000
) -> OtherVocabularyDrafter:
    model = reciting(texts)
    sizes = Capabilities(DRAFT.vocab_size, 2, num_blocks, 0, -(-max_len // 2), 64)
    prepare = functools.partial(draft_setup, greedy=True, vocab_size=0)
    return OtherVocabularyDrafter(
        DraftRunner(StubRunner(model, sizes), prepare), TARGET, DRAFT,
        num_blocks=num_blocks, block_size=2, max_model_len=max_len, max_num_batched_tokens=budget,
    )  # fmt: skip


def ask(seq_id: int, tokens: list[int], most: int = 5, room: int = 100) -> DraftRequest:
    params = SamplingParams(temperature=0.7, min_tokens=2, logit_bias={3: 1.0})
    setup = request_setup(seq_id, tokens[:1], params, 0, frozenset({TARGET.vocab_size - 1}))
    held = CacheView(np.zeros(0, np.int32), True, setup, 0, room)
    return DraftRequest(seq_id, tokens, 1, most, held=held)


def text_of(tokens: Sequence[int]) -> bytes:
    assert TARGET.token_bytes is not None
    return b"".join(TARGET.token_bytes[token] for token in tokens)


@example(text=TEXT, step=1)
@example(text="🙂東 a", step=1)
@example(text="wal king", step=1)
@given(
    text=st.text(st.sampled_from("acht wlking🙂東京é \n1"), min_size=1, max_size=60),
    step=st.integers(1, 3),
)
def test_what_is_guessed_goes_on_as_the_text(text: str, step: int) -> None:
    """Whatever the borders of tokens, and of characters."""
    tokens = TARGET.encode(text)
    drafter = make([text])
    for n in range(1, len(tokens), step):
        (guesses,) = drafter.propose([ask(0, tokens[:n])])
        rest = text_of(tokens[n:])
        assert rest.startswith(text_of(guesses or [])), (n, guesses)


@pytest.mark.parametrize(("most", "faster"), [(5, 1.5), (15, 2.5)])
def test_most_guesses_are_the_target_s_tokens(most: int, faster: float) -> None:
    """A token of the target is two of the draft here."""
    tokens = TARGET.encode(TEXT)
    drafter, right, steps, n = make([TEXT]), 0, 0, 1
    while n < len(tokens):
        (guesses,) = drafter.propose([ask(0, tokens[:n], most)])
        count = 0
        for guess, token in zip(guesses or [], tokens[n:], strict=False):
            if guess != token:
                break
            count += 1
        right, steps, n = right + count, steps + 1, n + count + 1
    assert right + steps >= len(tokens) - 1 and len(tokens) > faster * steps, (len(tokens), steps)


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("The dog", " walked, and"),
        ("The dog wal", "ked, and"),  # its tokenizer has "walked" in one
        ("again and aga", "in"),
        ("東", "京タワ"),
        ("", "The"),
        ("The", ""),
    ],
)
def test_guesses_stand_behind_what_is_there(before: str, behind: str) -> None:
    """That holds where both would grow together, and where they end within a character."""
    words, data = Words(TARGET), behind.encode()
    assert text_of(words.behind(before.encode(), data)) == data
    half = words.behind(before.encode(), data + "🙂".encode()[:3])
    assert text_of(half) == data
    if before == "The dog":
        assert words.behind(before.encode(), data) == TARGET.encode(behind)


def test_bytes_that_are_no_text_give_no_guess() -> None:
    assert Words(TARGET).behind(b"The", b"\xff\xfe a") == []
    assert text_of(Words(TARGET).behind(b"\xffThe", b" cat")) == b" cat"


@pytest.mark.parametrize("text", ["walk walking walked again against", "a 東京東 🙂🙂 é walked"])
def test_what_was_asked_before_does_not_matter(text: str) -> None:
    """Byte by byte: words that go on become other tokens of the draft."""
    target = tokenizer(258)
    tokens, prepare = target.encode(text), functools.partial(draft_setup, greedy=True, vocab_size=0)
    model = reciting([text])

    def fresh() -> OtherVocabularyDrafter:
        sizes = Capabilities(DRAFT.vocab_size, 2, 99, 0, 50, 64)
        runner = DraftRunner(StubRunner(model, sizes), prepare)
        limits = {"num_blocks": 99, "block_size": 2, "max_model_len": 99}
        return OtherVocabularyDrafter(runner, target, DRAFT, **limits, max_num_batched_tokens=99)

    one, told = fresh(), 0
    for n in range(1, len(tokens)):
        found = one.propose([ask(0, tokens[:n])])
        assert found == fresh().propose([ask(0, tokens[:n])])
        told += bool(found[0])
    assert told >= 5


def test_guesses_end_with_the_draft_s_text() -> None:
    (guesses,) = make(["The cat<end> sat on"]).propose([ask(0, TARGET.encode("The"))])
    assert text_of(guesses or []).decode() == " cat"


def test_half_a_character_waits() -> None:
    byte = tokenizer(258)
    smile = byte.encode("🙂")
    assert len(smile) == 4
    translation = Translation(Words(byte), Words(DRAFT), [])
    for count in range(1, 4):
        translation.upto(smile[:count])
        assert translation.token_ids == [] and len(translation.rest) == count
    translation.upto(smile)
    assert translation.token_ids == DRAFT.encode("🙂") and not translation.rest


@given(
    text=st.text(st.sampled_from("acht wlkin 🙂東é\n1"), max_size=200),
    cuts=st.lists(st.integers(1, 7), min_size=40, max_size=40),
)
def test_a_text_is_translated_piece_by_piece(text: str, cuts: list[int]) -> None:
    """It is the whole text, whatever the pieces; and what is said to stay does."""
    tokens, n = TARGET.encode(text), 0
    translation = Translation(Words(TARGET), Words(DRAFT), [7])
    for cut in cuts:
        before = list(translation.token_ids)
        n = min(len(tokens), n + cut)
        stays = translation.upto(tokens[:n])
        assert translation.token_ids[:stays] == before[:stays]
        assert stays >= len(before) - 49
    translation.upto(tokens)
    words = Words(DRAFT)
    assert translation.token_ids[0] == 7
    assert words.bytes_of(translation.token_ids[1:]).decode() == text and not translation.rest


def test_special_tokens_are_no_text() -> None:
    end = TARGET.vocab_size - 1
    tokens = [end, *TARGET.encode("The cat"), end, *TARGET.encode("The dog")]
    (guesses,) = make(["The catThe dog walked"]).propose([ask(0, tokens)])
    assert text_of(guesses or []).decode() == " walked"
    (nothing,) = make([]).propose([ask(0, [end])])
    assert nothing == []


def test_only_what_is_new_is_computed() -> None:
    tokens = TARGET.encode(TEXT)
    drafter = make([TEXT])
    runner: Any = drafter._runner.runner
    computed: list[int] = []
    launch = runner.launch
    runner.launch = lambda step: computed.append(len(step.rows[0].tokens)) or launch(step)
    for n in range(20, 90):
        drafter.propose([ask(0, tokens[:n], most=1)])
    assert computed[0] >= 20 and max(computed[1:]) <= 50 and sum(computed[1:]) < 70 * 5


def test_the_pool_runs_out() -> None:
    """The sequence asked longest ago is forgotten; those asked for now share what there is."""
    texts = [TEXT, TEXT[4:], TEXT[8:]]
    tokens = [TARGET.encode(text)[:40] for text in texts]
    lengths = [len(DRAFT.encode(TARGET.decode(one))) for one in tokens]
    drafter = make(texts, num_blocks=sum(lengths[:2]) // 2 + 8)
    pool = drafter._pool
    for i in (0, 1, 2, 0, 1, 2):
        (guesses,) = drafter.propose([ask(i, tokens[i])])
        assert guesses and len(drafter._known) <= 2
    together = drafter.propose([ask(i, tokens[i]) for i in range(3)])
    assert sum(guesses is None for guesses in together) == 1
    drafter.forget({0, 1, 2})
    assert pool.num_free == pool.num_blocks and not drafter._known


@pytest.mark.parametrize(("max_len", "room"), [(20, 100), (800, 0)])
def test_beyond_the_length_nothing_is_guessed(max_len: int, room: int) -> None:
    tokens = TARGET.encode(TEXT)[:30]
    assert make([TEXT], max_len=max_len).propose([ask(0, tokens, room=room)]) == [[]]


def test_a_long_prompt_is_computed_in_several_calls() -> None:
    tokens = TARGET.encode(TEXT)[:60]
    drafter = make([TEXT], budget=32)
    found = [drafter.propose([ask(0, tokens)])[0] for _ in range(6)]
    assert found[0] is None and found[-1]


def test_a_runner_that_fails_begins_anew() -> None:
    tokens = TARGET.encode(TEXT)
    drafter = make([TEXT])
    runner: Any = drafter._runner.runner
    assert drafter.propose([ask(0, tokens[:30])])[0]
    runner.fail_at = "collect"
    with pytest.raises(StubRunner.Error):
        drafter.propose([ask(0, tokens[:32])])
    assert drafter.propose([ask(0, tokens[:33])])[0]
