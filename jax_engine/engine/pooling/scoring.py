"""`LLM.score`: scores pairs of texts, by a reranker's head or by comparing their embeddings."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jax_engine.checks import shown
from jax_engine.engine.requests.prompts import (
    PromptInput,
    TokenizationOptions,
    parse_prompt,
    prompt_text,
)
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import PoolingRequestOutput, ScoringOutput, ScoringRequestOutput
from jax_engine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:  # it imports JAX, which a server's process does not have
    from jax_engine.engine.llm_engine import LLMEngine

_PLAIN = TokenizationOptions()


def paired(
    left: list[PromptInput], right: list[PromptInput]
) -> tuple[list[PromptInput], list[PromptInput]]:
    """Pairs texts; a single left one goes with every right one. Raises InvalidRequestError."""
    if len(left) not in (1, len(right)):
        raise InvalidRequestError(
            f"data_1 must hold 1 text or as many as data_2 ({len(right)}), got {len(left)}"
        )
    return (left * len(right) if len(left) == 1 else left), right


def reranker_prompts(
    engine: "LLMEngine",
    left: list[PromptInput],
    right: list[PromptInput],
    template: str | None,
    options: TokenizationOptions = _PLAIN,
) -> list[PromptInput]:
    """Joins each pair to one prompt of token ids, with their types if the model knows types.

    Raises:
        RequestTooLargeError: A text cannot fit, and it is not to be cut.
        InvalidRequestError: The head gives several scores, a prompt is invalid, or the template
            cannot take the texts.
    """
    assert engine.head is not None
    labels = engine.head.config.labels
    if len(labels) != 1:
        raise InvalidRequestError(
            f"score needs a model with a head for 1 score, got {len(labels)}: use classify"
        )
    prompts: list[PromptInput] = []
    for one, other in zip(left, right, strict=True):
        if engine.text_length is not None and not options.cuts:
            for text in filter(None, map(prompt_text, (one, other))):
                engine.text_length.check(text, room=0)
        special = options.add_special_tokens
        if template is not None:
            prompts.append(options.cut(_templated(engine, one, other, template, special)))
        else:
            prompts.append(_joined(engine, one, other, special, options))
    return prompts


def _joined(
    engine: "LLMEngine",
    left: PromptInput,
    right: PromptInput,
    add_special_tokens: bool,
    options: TokenizationOptions,
) -> PromptInput:
    """Joins two texts as the tokenizer joins pairs; token ids are concatenated."""
    types = (engine.model_config.spec.token_types or 0) > 1
    if isinstance(left, str) and isinstance(right, str) and engine.tokenizer is not None:
        encode = engine.tokenizer.backend.encode
        found = encode(left, right, add_special_tokens=add_special_tokens)
        keeps = add_special_tokens and options.cuts and engine.model_config.spec.is_encoder
        around = engine.tokenizer.around if keeps else (0, 0)
        ids, of_tokens = (options.cut(one, around) for one in (found.ids, found.type_ids))
        return with_token_types(ids, of_tokens, types)
    vocab_size = engine.model_config.vocab_size
    first, second = (
        parse_prompt(one, engine.tokenizer, vocab_size).token_ids for one in (left, right)
    )
    both = [0] * len(first) + [1] * len(second)
    return with_token_types(options.cut(first + second), options.cut(both), types)


def with_token_types(ids: list[int], types: list[int], is_known: bool) -> PromptInput:
    """A prompt of these ids, with their types where the model knows types."""
    return {"prompt_token_ids": ids, "token_type_ids": types} if is_known else ids


def _templated(
    engine: "LLMEngine",
    left: PromptInput,
    right: PromptInput,
    template: str,
    add_special_tokens: bool,
) -> list[int]:
    if engine.tokenizer is None or not (isinstance(left, str) and isinstance(right, str)):
        raise InvalidRequestError(
            f"chat_template needs two texts and a tokenizer, got {shown(left)} and {shown(right)}"
        )
    text = pair_messages(engine.tokenizer, left, right, template)
    return engine.tokenizer.encode(text, add_special_tokens=add_special_tokens)


def pair_messages(tokenizer: Tokenizer, left: str, right: str, template: str | None) -> str:
    """Two texts as the messages of a template, with the roles "query" and "document"."""
    messages = [{"role": "query", "content": left}, {"role": "document", "content": right}]
    return tokenizer.chat.render(messages, chat_template=template, content_format="string")


def whole_pair_scored(output: PoolingRequestOutput) -> ScoringRequestOutput:
    """The head's score of both texts."""
    value = output.outputs.data
    score = float(value[0]) if value.size else 0.0
    return _output(output.request_id, score, output.prompt_token_ids, output.finished)


def compared(a: PoolingRequestOutput, b: PoolingRequestOutput) -> ScoringRequestOutput:
    """The cosine of two embeddings; of token embeddings, the sum over `a` of the best cosine."""
    first, second = unit(a.outputs.data), unit(b.outputs.data)
    if not (first.size and second.size):
        score = 0.0
    elif first.ndim == 2:
        score = float((first @ second.T).max(axis=1).sum())
    else:
        score = float(first @ second)
    ids = a.prompt_token_ids + b.prompt_token_ids
    return _output(f"{a.request_id}-{b.request_id}", score, ids, a.finished and b.finished)


def _output(name: str, score: float, ids: list[int], finished: bool) -> ScoringRequestOutput:
    return ScoringRequestOutput(name, ScoringOutput(score), ids, finished)


def unit(vectors: np.ndarray) -> Any:
    """Vectors of length 1, those of length 0 as they are."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
