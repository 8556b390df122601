"""The section about models that read a query and its documents as one prompt."""

from jax_engine.models.registry import RERANKERS, config_from_hf, family_of
from scripts.families.models import families
from tests.golden.families.rankings import cases

SECTION = """
## Rerankers of whole lists

A family here reads a query and all of its documents as one prompt, and gives a vector of each,
which are compared ([Using them](using.md#rerankers-of-whole-lists)). Its layers are those of a
decoder above. Vectors of {cases} tiny random checkpoints are within 1e-4 of PyTorch's, relative to
the largest number (`tests/models/test_rankings.py`).

"""
HEAD = ["family", "layers", "numbers of a vector", "architectures", "what is special"]


def section() -> tuple[str, list[str], list[list[str]]]:
    """The words, and the table's head and rows."""
    rows = []
    for name in dict.fromkeys(RERANKERS.values()):
        own = [one for one in RERANKERS if RERANKERS[one] == name]
        title, _, special = (family_of(own[0]).__doc__ or "").strip().partition(": ")
        raw = {**next(iter(cases().values()))["config"], "architectures": own[:1]}
        del raw["embedding_size"]
        config = config_from_hf(raw)
        assert config.head is not None and config.head.ranking is not None
        layers = next(
            one.title
            for one in families()
            if family_of(one.architectures[0]).specification is family_of(own[0]).specification
        )
        named = "<br>".join(f"`{one}`" for one in own)
        what = special[0].upper() + " ".join(special[1:].split())
        rows.append([title, layers, str(config.head.ranking.size), named, what])
    return SECTION.format(cases=len(cases())), HEAD, rows
