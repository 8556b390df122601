"""`LLM.score`: scores pairs of texts, by a reranker's head or by comparing their embeddings."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jax_engine.checks import shown
from jax_engine.engine.prompts import PromptInput, TokenizationOptions, parse_prompt, prompt_text
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
    """Joins each pair to one prompt of token ids.

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
        if template is None:
            ids = _joined(engine, one, other, special)
        else:
            ids = _templated(engine, one, other, template, special)
        prompts.append(options.cut(ids))
    return prompts


def _joined(
    engine: "LLMEngine", left: PromptInput, right: PromptInput, add_special_tokens: bool
) -> list[int]:
    """Joins two texts as the tokenizer joins pairs; token ids are concatenated."""
    if isinstance(left, str) and isinstance(right, str) and engine.tokenizer is not None:
        encode = engine.tokenizer.backend.encode
        ids: list[int] = encode(left, right, add_special_tokens=add_special_tokens).ids
        return ids
    vocab_size = engine.model_config.vocab_size
    first, second = (parse_prompt(one, engine.tokenizer, vocab_size) for one in (left, right))
    return first.token_ids + second.token_ids


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
    first, second = _unit(a.outputs.data), _unit(b.outputs.data)
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


def _unit(vectors: np.ndarray) -> Any:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
