"""`LLM.score` and `LLM.encode` of a model that reads a query and its documents as one prompt.

Its head makes a vector of each document and one of the query (`models.families.jina_ranking`).
A document's score is the cosine of its vector and the query's.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jax_engine.checks import shown
from jax_engine.engine.pooling.scoring import paired, unit
from jax_engine.engine.requests.prompts import (
    PromptInput,
    prompt_text,
    tokenization_options,
    with_token_ids,
)
from jax_engine.errors import InvalidRequestError
from jax_engine.models.families.jina_ranking import DOCUMENT, QUERY, ranking_prompt
from jax_engine.outputs import PoolingRequestOutput, ScoringOutput, ScoringRequestOutput
from jax_engine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:  # it imports JAX, which a server's process does not have
    from jax_engine.engine.llm_engine import LLMEngine


class Ranked(NamedTuple):
    """What one prompt holds."""

    query: str
    documents: list[str]

    @property
    def text(self) -> str:
        """As the model reads it."""
        return ranking_prompt(self.query, self.documents)


def is_ranking(engine: "LLMEngine") -> bool:
    """Whether the engine's model reads a query and its documents as one prompt."""
    return engine.head is not None and engine.head.config.ranking is not None


def scored_together(left: Sequence[Any], right: Sequence[Any]) -> list[Ranked]:
    """The prompts of `score`: a single query goes with all documents, else each with its own.

    Raises:
        InvalidRequestError: The numbers do not match, or one of them is no text.
    """
    queries, documents = paired(list(left), list(right))
    if len(left) == 1 and documents:
        return [Ranked(_text("data_1", left[0]), [_text("data_2", one) for one in documents])]
    pairs = zip(queries, documents, strict=True)
    return [Ranked(_text("data_1", one), [_text("data_2", other)]) for one, other in pairs]


def encoded_together(texts: Sequence[Any]) -> Ranked:
    """The prompt of `encode`: documents, and behind them the query.

    Raises:
        InvalidRequestError: There are fewer than two, or one of them is no text.
    """
    if len(texts) < 2:
        raise InvalidRequestError(
            "a model that ranks documents reads at least 2 texts together, documents and behind "
            f"them the query, got {len(texts)}"
        )
    *documents, query = [_text(f"prompts[{i}]", one) for i, one in enumerate(texts)]
    return Ranked(query, documents)


def _text(name: str, given: Any) -> str:
    text = prompt_text(given) if isinstance(given, str) else None
    if text is None:
        raise InvalidRequestError(
            f"{name} must be text for a model that ranks documents, got {shown(given)}"
        )
    return text


def prompts_of(
    engine: "LLMEngine", asked: Sequence[Ranked], tokenization_kwargs: Mapping[str, Any] | None
) -> list[PromptInput]:
    """The prompts' token ids.

    Raises:
        RequestTooLargeError: A prompt cannot fit, and it is not to be cut.
        InvalidRequestError: The engine has no tokenizer, an option is wrong, or the cut takes
            documents away.
    """
    options = tokenization_options(tokenization_kwargs)
    prompts: list[PromptInput] = []
    for one in asked:
        if engine.tokenizer is None:
            raise InvalidRequestError(
                "a model that ranks documents needs a tokenizer, got skip_tokenizer_init=True"
            )
        text = one.text
        if engine.text_length is not None and not options.cuts:
            engine.text_length.check(text, room=0)
        special = options.add_special_tokens
        ids = options.cut(engine.tokenizer.encode(text, add_special_tokens=special))
        check_marks(engine.tokenizer, ids, len(one.documents))
        prompts.append(with_token_ids({}, text, ids))
    return prompts


def check_marks(tokenizer: Tokenizer, token_ids: Sequence[int], num_documents: int) -> None:
    """Raises InvalidRequestError if tokens of which vectors are made were cut away."""
    marks = [tokenizer.backend.token_to_id(one) for one in (DOCUMENT, QUERY)]
    found = [token_ids.count(mark) for mark in marks]
    if found != [num_documents, 1]:
        raise InvalidRequestError(
            f"the prompt must keep its documents ({num_documents}) and the query when it is cut, "
            f"got {found[0]} and {found[1]} of them in {len(token_ids)} tokens"
        )


def scores_of(
    outputs: Sequence[PoolingRequestOutput], asked: Sequence[Ranked]
) -> list[ScoringRequestOutput]:
    """The scores of all documents, in order."""
    each = zip(outputs, asked, strict=True)
    return [score for output, one in each for score in _cosines(output, len(one.documents))]


def _cosines(output: PoolingRequestOutput, num_documents: int) -> list[ScoringRequestOutput]:
    """Each document's score; 0 where nothing was computed."""
    vectors = unit(output.outputs.data)
    scores = vectors[:-1] @ vectors[-1] if vectors.size else np.zeros(num_documents)
    return [
        ScoringRequestOutput(
            output.request_id, ScoringOutput(float(one)), output.prompt_token_ids, output.finished
        )
        for one in scores
    ]
