"""A text that cannot fit is refused by its length: `LLM` does not tokenise it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, PoolingParams, RequestTooLargeError, SamplingParams
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.support.heads import with_head
from tests.support.tiny_llama import byte_llama

LIMIT = 50
LONGEST = len("<|end|>")  # bytes of the longest token
FITS_NEVER = "x" * (LONGEST * LIMIT + 1)
SHORT = [{"role": "user", "content": "a"}]
SAY = [{"role": "user", "content": FITS_NEVER}]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
GREEDY = SamplingParams(max_tokens=1, temperature=0.0)
CUT = SamplingParams(max_tokens=1, temperature=0.0, truncate_prompt_tokens=3)
KEEP: dict[str, Any] = {"tokenization_kwargs": {"truncate_prompt_tokens": 3}}
PLAIN: dict[str, Any] = {"tokenization_kwargs": {"add_special_tokens": False}}
QUIET: dict[str, Any] = {"use_tqdm": False}
type Call = Callable[[LLM], Any]

REFUSED: dict[str, Call] = {
    "generate": lambda llm: llm.generate(["a", FITS_NEVER], GREEDY),
    "a dict": lambda llm: llm.generate(["a", {"prompt": FITS_NEVER}], GREEDY),
    "options": lambda llm: llm.generate(["a", FITS_NEVER], GREEDY, **PLAIN),
    "enqueue": lambda llm: llm.enqueue(["a", FITS_NEVER], GREEDY),
    "chat": lambda llm: llm.chat(
        [[SAY[0] | {"content": "a"}], SAY], GREEDY, chat_template=TEMPLATE
    ),
    "beams": lambda llm: llm.generate(
        ["a", FITS_NEVER], SamplingParams(use_beam_search=True, n=2, max_tokens=1)
    ),
    "score_tokens": lambda llm: llm.score_tokens(["a", FITS_NEVER]),
    "embed": lambda llm: llm.embed(["a", FITS_NEVER]),
    "embed, options": lambda llm: llm.embed(["a", FITS_NEVER], **PLAIN),
    "score": lambda llm: llm.score("a", FITS_NEVER),
}
CUT_TO_3: dict[str, Call] = {
    "params": lambda llm: llm.generate(FITS_NEVER, CUT, **QUIET),
    "options": lambda llm: llm.generate(FITS_NEVER, GREEDY, **KEEP, **QUIET),
    "both": lambda llm: llm.generate(FITS_NEVER, CUT, **PLAIN, **QUIET),
    "chat": lambda llm: llm.chat(SAY, CUT, chat_template=TEMPLATE, **QUIET),
    "embed": lambda llm: llm.embed(FITS_NEVER, PoolingParams(), **KEEP, **QUIET),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("lengths") / "model", max_position_embeddings=LIMIT)


@pytest.fixture(scope="module")
def llm(checkpoint: Path) -> LLM:
    return LLM(str(checkpoint), block_size=8)


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are tokenised."""
    found: list[str] = []
    encode = Tokenizer.encode

    def noted(self: Tokenizer, text: str, **options: Any) -> list[int]:
        found.append(text)
        return encode(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", noted)
    return found


@pytest.mark.parametrize("way", REFUSED)
def test_what_cannot_fit_is_not_tokenised(way: str, llm: LLM, tokenised: list[str]) -> None:
    room = "50" if "embed" in way or way == "score" else "49 and one of output"
    with pytest.raises(
        RequestTooLargeError, match=rf"prompts\[1\]: .*at least 51 tokens, .* 50 allows {room}: "
    ):
        REFUSED[way](llm)
    assert FITS_NEVER not in tokenised


@pytest.mark.parametrize("way", CUT_TO_3)
def test_what_is_cut_has_any_length(way: str, llm: LLM, tokenised: list[str]) -> None:
    [output] = CUT_TO_3[way](llm)
    assert output.prompt_token_ids == [ord("x")] * 3 and tokenised == [FITS_NEVER]


def test_the_bound_is_no_tighter_than_the_longest_token(llm: LLM) -> None:
    for count, fits in ((LIMIT - 1, True), (LIMIT, False)):
        text = "<|end|>" * count
        if fits:
            assert len(llm.generate(text, GREEDY, **QUIET)[0].prompt_token_ids) == count
        else:
            with pytest.raises(RequestTooLargeError, match="at least 50 tokens"):
                llm.generate(text, GREEDY)
            assert len(llm.embed(text, **QUIET)[0].prompt_token_ids) == count


def test_a_reranker_refuses_either_text(checkpoint: Path, tmp_path: Path) -> None:
    llm = LLM(str(with_head(checkpoint, tmp_path / "r", kind="SequenceClassification", labels=1)))
    for pair in (("a", FITS_NEVER), (FITS_NEVER, "a"), ({"prompt": FITS_NEVER}, "a")):
        with pytest.raises(RequestTooLargeError, match="at least 51 tokens, max_model_len 50"):
            llm.score(*pair)
    assert llm.score("a", FITS_NEVER, **KEEP, **QUIET)[0].prompt_token_ids == [ord("x")] * 3
