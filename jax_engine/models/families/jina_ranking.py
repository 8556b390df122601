"""jina-reranker-v3: Qwen 3's decoder, and a projector of the states behind documents and query."""

from collections.abc import Sequence

from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import qwen3
from jax_engine.models.model_config import HeadConfig, HeadLayers, Ranking

specification = qwen3.specification
weights = qwen3.weights

DOCUMENT, QUERY = "<|embed_token|>", "<|rerank_token|>"
_TASK = (
    "You are a search relevance expert who can determine a ranking of the passages based on how "
    "relevant they are to the query. If the query is a question, how relevant a passage is depends "
    "on how well it answers the question. If not, try to analyze the intent of the query and "
    "assess how well each passage satisfies the intent. If an instruction is provided, you should "
    "follow the instruction when determining the ranking."
)
_BEGINNING = (
    "I will provide you with {count} passages, each indicated by a numerical identifier. Rank the "
    "passages based on their relevance to query: {query}\n"
)


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


def ranking_prompt(query: str, documents: Sequence[str]) -> str:
    """The text that the model reads: a query and all its documents, with the roles of Qwen's chats.

    A token of its own stands behind each document, and another behind the query's second copy.
    Their states become the vectors that are compared. The words are those that the model was
    trained with, so no other ones will do.
    """
    query, texts = _unmarked(query), map(_unmarked, documents)
    passages = [
        f'<passage id="{number}">\n{text}{DOCUMENT}\n</passage>\n'
        for number, text in enumerate(texts)
    ]
    asked = _BEGINNING.format(count=len(documents), query=query) + "".join(passages)
    return (
        f"<|im_start|>system\n{_TASK}<|im_end|>\n"
        f"<|im_start|>user\n{asked}<query>\n{query}{QUERY}\n</query><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def _unmarked(text: str) -> str:
    """The text without either token; one that is left by taking out another is broken."""
    for token in (QUERY, DOCUMENT):
        text = text.replace(token, "")
    for token in (QUERY, DOCUMENT):
        text = text.replace(token, f"< {token[1:]}")
    return text
