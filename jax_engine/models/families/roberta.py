"""RoBERTa, XLM-R: BERT whose positions are counted from behind the number of the padding token."""

import dataclasses

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import TokenId
from jax_engine.models.families import bert
from jax_engine.models.families.hf_config import FILE
from jax_engine.models.model_config import HeadLayers, HeadTask
from jax_engine.weights.transforms import Declaration


class Fields(bert.Fields, frozen=True):
    """BERT's fields, and the padding token. A table of 514 rows is one of 512 positions."""

    pad_token_id: TokenId = 1


def specification(fields: Fields) -> ModelSpec:
    """BERT's layers. Raises ConfigError if no row is left for a position."""
    spec, first = bert.specification(fields), fields.pad_token_id + 1
    rows = fields.max_position_embeddings - first
    if rows < 1:
        raise ConfigError(
            f"{FILE}: max_position_embeddings must be above pad_token_id + 1 ({first}), got "
            f"{fields.max_position_embeddings}."
        )
    return dataclasses.replace(spec, first_position=first, max_context_len=rows)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """BERT's names below another one."""
    return bert.weights(spec, "roberta")


def head(fields: Fields, task: HeadTask) -> HeadLayers:
    """Scores of the first token's state, behind a matrix of the head's own; or of each token's."""
    if task == "token_classify":
        return HeadLayers("classifier")
    return HeadLayers("classifier.out_proj", "CLS", dense="classifier.dense", activation="tanh")
