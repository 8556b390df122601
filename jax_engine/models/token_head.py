"""A head for scores that a checkpoint lacks, made of the rows that give the logits of tokens.

Rerankers such as Qwen3-Reranker answer "yes" or "no". As a head, their logits need two rows of the
output matrix instead of the whole vocabulary. `hf_overrides` say so with vLLM's fields
`classifier_from_token` and `method`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.file_schema import checked
from jax_engine.models.model_config import Ranking, TokenRows
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Tensor

Name = Annotated[str, Meta(min_length=1, max_length=256)]
DIFFERENCE = "from_2_way_softmax"


class TokenHeadFields(msgspec.Struct, frozen=True):
    """Fields of config.json, which come from `hf_overrides`."""

    classifier_from_token: Annotated[list[Name | int], Meta(max_length=1024)] | None = None
    method: Literal["from_2_way_softmax", "no_post_processing"] | None = None
    is_original_qwen3_reranker: bool = False


def token_rows(raw: Mapping[str, Any], matrix: str | None) -> TokenRows | None:
    """How the scores are made of tokens' logits; None: the checkpoint has a head.

    Args:
        matrix: The tensor of which each row gives a token's logit; None: there is no such tensor.

    Raises:
        ConfigError: The fields contradict each other, or the model has no such tensor.
    """
    fields = checked(raw, TokenHeadFields, "config.json")
    method = DIFFERENCE if fields.is_original_qwen3_reranker else fields.method
    tokens = tuple(fields.classifier_from_token or ())
    if method is None:
        return None
    if not tokens or (method == DIFFERENCE and len(tokens) != 2):
        wanted = "the two tokens for no and yes" if method == DIFFERENCE else "one token or several"
        raise ConfigError(
            f"config.json: classifier_from_token must be {wanted} for the method {method}, got "
            f"{list(tokens)}"
        )
    if matrix is None:
        raise ConfigError(
            "config.json: classifier_from_token needs an output matrix that is one tensor of the "
            f"checkpoint, which this architecture lacks, got {list(tokens)}"
        )
    return TokenRows(tokens, matrix, method == DIFFERENCE)


def read_rows(source: TensorSource, rows: TokenRows, folder: Path) -> np.ndarray:
    """The weights [C, E] of the head, in float32: a row for each token, or the rows' difference.

    The whole matrix is read, and given back at once.

    Args:
        folder: Where the tokenizer is.

    Raises:
        ConfigError: A token is not in the vocabulary.
        WeightsError: The matrix is not there, or has numbers that are not finite.
    """
    ids = _token_ids(rows.tokens, folder)
    if rows.matrix not in source.names():
        raise WeightsError(
            f"{source.location}: there is no tensor {rows.matrix}, of which classifier_from_token "
            "needs rows. Has the checkpoint a head of its own?"
        )
    count = source.shape(rows.matrix)[0]
    beyond = [one for one in ids if not 0 <= one < count]
    if beyond:
        raise ConfigError(
            f"classifier_from_token must be tokens below {count}, the rows of {rows.matrix}, got "
            f"{beyond[0]}"
        )
    whole = np.empty(source.shape(rows.matrix), np.float32)
    Tensor(rows.matrix).read_into(source, whole, {})
    found: np.ndarray = whole[ids]
    return found[1:] - found[:1] if rows.is_difference else found


def ranking_ids(ranking: Ranking, folder: Path, vocab_size: int) -> tuple[int, ...]:
    """The ids of the tokens whose states a head for vectors reads: by the vocabulary, if it is
    there.

    Raises:
        ConfigError: The model has no such tokens.
    """
    vocabulary = _vocabulary(folder)
    ids: tuple[int | None, ...] = ranking.ids
    if vocabulary is not None:
        ids = tuple(vocabulary.token_to_id(token) for token in ranking.tokens)
    found = tuple(one for one in ids if one is not None and one < vocab_size)
    if len(found) < len(ids):
        raise ConfigError(
            f"the vocabulary must have the tokens {' and '.join(ranking.tokens)} below "
            f"{vocab_size}, which this architecture reads, got {list(ids)}"
        )
    return found


def _vocabulary(folder: Path) -> Any:
    """The checkpoint's tokenizer as `tokenizers` reads it; None: it has no tokenizer.json."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if path.exists() else None


def _token_ids(tokens: tuple[str | int, ...], folder: Path) -> list[int]:
    if all(isinstance(token, int) for token in tokens):
        return [int(token) for token in tokens]
    vocabulary = _vocabulary(folder)
    if vocabulary is None:
        raise ConfigError(
            f"classifier_from_token must be ids of tokens, since {folder} has no tokenizer.json, "
            f"got {list(tokens)}"
        )
    found = []
    for token in tokens:
        number = token if isinstance(token, int) else vocabulary.token_to_id(token)
        if number is None:
            raise ConfigError(
                f"classifier_from_token must be whole tokens of the vocabulary, got {token!r}"
            )
        found.append(number)
    return found
