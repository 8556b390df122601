"""The section about encoders, by their families' own defaults."""

from jax_engine.models.registry import ENCODERS, config_from_hf, family_of
from scripts.families.words import (
    Facet,
    attention_bias,
    cell,
    dense,
    dense_bias,
    embedding_norm,
    norm_kind,
    norm_places,
    positions,
    token_types,
    window,
)
from tests.golden.families.encoders import cases

SECTION = """
## Encoders

{count} families of encoders read a whole text at once, and give vectors or scores
([Embeddings](using.md#encoders)). The table has what they are by default. Architectures may also
end in `ForSequenceClassification` (classes, cross-encoders) or `ForTokenClassification`. States of
{cases} tiny random checkpoints, also of pairs of texts, and the scores of their heads are within
1e-4 of transformers', relative to the largest number (`tests/models/test_encoders.py`).

"""
COLUMNS: dict[str, tuple[Facet, ...]] = {
    "positions": (positions, token_types),
    "norms": (norm_kind, norm_places, embedding_norm),
    "attention": (window, attention_bias),
    "MLP": (dense, dense_bias),
}


def section() -> tuple[str, list[str], list[list[str]]]:
    """The words, and the table's head and rows."""
    rows = []
    for name in dict.fromkeys(ENCODERS.values()):
        own = [one for one in ENCODERS if ENCODERS[one] == name]
        title, _, special = (family_of(own[0]).__doc__ or "").strip().partition(": ")
        config = config_from_hf({"architectures": own[:1]})
        said = [cell([config], facets) for facets in COLUMNS.values()]
        named = "<br>".join(f"`{one}`" for one in own)
        rows.append([title, *said, named, special[0].upper() + " ".join(special[1:].split())])
    words = SECTION.format(count=len(rows), cases=len(cases()))
    head = ["family", *COLUMNS, "architectures", "what is special"]
    return words, head, sorted(rows, key=lambda row: row[0].casefold())
