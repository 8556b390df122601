"""jina-reranker-v3: Qwen 3's decoder, and a projector of the states behind documents and query."""

from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import qwen3
from jax_engine.models.model_config import HeadConfig, HeadLayers, Ranking
from jax_engine.ranking_prompt import DOCUMENT, QUERY

specification = qwen3.specification
weights = qwen3.weights


class Fields(qwen3.Fields, frozen=True):
    """Qwen 3's fields; published files leave out how long a vector is."""

    embedding_size: Size = 512


def head(fields: Fields) -> HeadConfig:
    """Two matrices without biases, and a ReLU between them."""
    projector = HeadLayers(
        scores="projector.2",
        dense="projector.0",
        inner=fields.hidden_size // 2,
        activation="relu",
    )
    ranking = Ranking(fields.embedding_size, (DOCUMENT, QUERY), (151670, 151671))
    return HeadConfig("token_embed", (), projector, ranking=ranking)
