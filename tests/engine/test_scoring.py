"""`LLM.score`: how pairs become prompts, and what their scores are; without a model."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine import InvalidRequestError
from jax_engine.engine.pooling.scoring import compared, paired, reranker_prompts, whole_pair_scored
from jax_engine.engine.requests.prompts import TokenizationOptions
from jax_engine.outputs import PoolingOutput, PoolingRequestOutput, ScoringRequestOutput


class Letters:
    """a is 1, b is 2; pairs are joined by a 9, as some tokenizers join them; 27 is special."""

    def __init__(self) -> None:
        self.backend = SimpleNamespace(
            encode=lambda *texts, **options: SimpleNamespace(
                ids=self.encode("i".join(texts), **options),
                type_ids=[],
            )
        )
        self.chat = SimpleNamespace(render=self.render)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [27] * add_special_tokens + [ord(one) - ord("a") + 1 for one in text]

    def render(self, messages: Any, *, chat_template: str, content_format: str) -> str:
        assert content_format == "string"
        return chat_template + "".join(one["role"][0] + one["content"] for one in messages)


def engine(tokenizer: Any, labels: int = 1) -> Any:
    return SimpleNamespace(
        tokenizer=tokenizer,
        text_length=None,
        head=SimpleNamespace(config=SimpleNamespace(labels=("x",) * labels)),
        model_config=SimpleNamespace(
            vocab_size=30, spec=SimpleNamespace(token_types=None, is_encoder=False)
        ),
    )


def test_as_many_on_either_side() -> None:
    assert paired(["a"], ["b", "c"]) == (["a", "a"], ["b", "c"])
    assert paired(["a", "b"], ["c", "d"]) == (["a", "b"], ["c", "d"])
    with pytest.raises(InvalidRequestError, match=r"as many as data_2 \(1\), got 2"):
        paired(["a", "b"], ["c"])


def test_prompts_of_a_reranker() -> None:
    """Two texts as the tokenizer joins pairs; token ids one behind the other."""
    assert reranker_prompts(engine(Letters()), ["a"], ["b"], None) == [[27, 1, 9, 2]]
    assert reranker_prompts(engine(Letters()), ["a", [7]], [[5, 6], "b"], None) == [
        [1, 5, 6], [7, 2],
    ]  # fmt: skip
    assert reranker_prompts(engine(None), [[7]], [[5]], None) == [[7, 5]]
    with pytest.raises(InvalidRequestError, match="no tokenizer"):
        reranker_prompts(engine(None), ["a"], ["b"], None)
    with pytest.raises(InvalidRequestError, match="head for 1 score, got 2"):
        reranker_prompts(engine(Letters(), labels=2), ["a"], ["b"], None)


@pytest.mark.parametrize("template", [None, "t"])
@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"add_special_tokens": False}, slice(1, None)),
        ({"truncate_prompt_tokens": 2}, slice(-2, None)),
        ({"truncation": True, "max_length": 3}, slice(3)),
    ],
)
def test_options_of_tokenising_hold_of_a_pair(
    template: str | None, options: dict[str, Any], part: slice
) -> None:
    made = engine(Letters())
    (whole,) = reranker_prompts(made, ["a"], ["b"], template)
    found = reranker_prompts(made, ["a"], ["b"], template, TokenizationOptions(**options))
    assert found == [list(whole)[part]]


def test_a_template_writes_the_pair() -> None:
    found = reranker_prompts(engine(Letters()), ["a"], ["b"], "t")
    assert found == [[27, *Letters().encode("tqadb")]]
    for wrong, left, right in ((None, "a", "b"), (Letters(), [1], "b"), (Letters(), "a", [1])):
        with pytest.raises(InvalidRequestError, match="chat_template needs two texts"):
            reranker_prompts(engine(wrong), [left], [right], "t")


def pooled(name: str, data: Any, *, finished: bool = True) -> PoolingRequestOutput:
    return PoolingRequestOutput(name, PoolingOutput(np.array(data)), [ord(name)], finished)


def fields(one: ScoringRequestOutput) -> tuple[Any, ...]:
    score = pytest.approx(one.outputs.score)
    return one.request_id, score, one.prompt_token_ids, one.finished


def test_what_the_head_says_of_a_pair() -> None:
    assert fields(whole_pair_scored(pooled("a", [0.75]))) == ("a", 0.75, [97], True)
    aborted = pooled("a", [], finished=False)
    assert fields(whole_pair_scored(aborted)) == ("a", 0.0, [97], False)


def test_embeddings_are_compared_by_their_angle() -> None:
    first, second = pooled("a", [3.0, 4.0]), pooled("b", [0.0, 10.0])
    assert fields(compared(first, second)) == ("a-b", 0.8, [97, 98], True)
    assert fields(compared(second, first)) == ("b-a", 0.8, [98, 97], True)
    assert compared(first, pooled("b", [0.0, 0.0])).outputs.score == 0.0  # not NaN


def test_token_by_token_the_best_of_the_other_text() -> None:
    first, second = pooled("a", [[1.0, 0.0], [0.0, 2.0]]), pooled("b", [[3.0, 4.0], [5.0, 0.0]])
    assert compared(first, second).outputs.score == pytest.approx(1.0 + 0.8)
    assert compared(second, first).outputs.score == pytest.approx(0.8 + 1.0)


@pytest.mark.parametrize("which", [0, 1])
def test_a_pair_of_which_one_was_aborted(which: int) -> None:
    """There may be nothing of it; the pair has not finished."""
    pair = [pooled("a", [1.0, 0.0]), pooled("b", [1.0, 0.0])]
    pair[which] = pooled("ab"[which], [], finished=False)
    assert fields(compared(*pair)) == ("a-b", 0.0, [97, 98], False)
