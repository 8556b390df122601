"""The prompt of jina-reranker-v3: a query and all its documents in one text.

A token of its own stands behind each document, and another behind the query's second copy. Their
states become the vectors that are compared. The words are those that the model was trained with, so
no other ones will do.
"""

from collections.abc import Sequence

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


def ranking_prompt(query: str, documents: Sequence[str]) -> str:
    """The text that the model reads, with the roles of Qwen's chats."""
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
