"""The text of docs/families.md."""

from pathlib import Path

from scripts.families import encoders, rerankers
from scripts.families.models import DEPTH, Family, families
from scripts.families.routing import EXPERTS
from scripts.families.words import COLUMNS, Facet, cell
from tests.golden.families.checkpoints import NUM_GREEDY, PROMPT, cases
from tests.golden.families.parity import figures

PAGE = Path(__file__).resolve().parents[2] / "docs" / "families.md"
INTRODUCTION = """\
# Model families

{count} families run. Each is a short file that declares its layers and its weights for the
[one decoder](how-it-works.md#a-model-is-a-specification). This page says what each is made of:
`python -m scripts.families` writes it from the specifications of the tests' tiny checkpoints, and
a test checks that it is up to date.

## Where the norms are

Two parts, attention and a feed-forward network (MLP), read the residual stream and add to it.
Families differ in where the norms are, and in whether the MLP reads the stream before or after
attention has added to it.

{{{{ figure family-layers }}}}

## Layers that differ

Some layers see a window of the last positions only. Some do not rotate queries and keys (NoPE).
Some have experts (*E*). A family's layers repeat a pattern, drawn here for {depth} layers as it is
by default. In the other families all layers are alike.

{{{{ figure family-patterns }}}}

## The decoder of each family

In brackets is what only some models of the family have.

- *Norms*: before or after each part. *1 + w*: the checkpoint stores the scale less one.
- *Attention*: MHA: each query head has a KV head of its own; GQA: a few share one; MQA: all share
  one; MLA: all heads' keys and values are made of one latent a token. *Window 3:1*: three layers
  with a window, then one without. *Chunks 3:1*: in three layers a query sees the positions of its
  own chunk only. *Own scale*: scores are not divided by the square root of the head's size.
- *Residual*: parallel parts read the same stream; of sequential ones, the MLP reads the stream
  after attention.
- *Difference*: between [our logits and transformers'](#the-differences).

"""
ROUTING = """
## The experts

A router scores the experts for each token, and the best k of them work on it. *Softmax, then
top-k*: the softmax is over all experts; *top-k, then softmax*: over the chosen ones. *Bias that
selects*: it is added to the scores for the choice, and not to the weights. *Weights of inputs*: an
expert's weight multiplies what it reads.

"""
NAMES = """
## The names

`architectures` in `config.json` names the family. Any other name is an error, which lists the
known names and the nearest one.

"""
DIFFERENCES = """
## The differences

PyTorch transformers {version} computes the logits of {cases} tiny random checkpoints in float32,
for a prompt of {prompt} tokens and {greedy} greedy tokens after it. We compute them over a paged
cache, the prompt in two chunks. The difference is the largest one of two logits, relative to the
largest logit, in all checkpoints of the family, whose number is in brackets. It must be below 1e-4,
and the greedy tokens must be the same (`tests/models/test_families.py`). A dash: transformers has
no class for the family. Its checkpoint is then one of another family that computes the same, with
other names (`tests/golden/families/isomorphs.py`), or the NumPy oracle alone computes it.

`python -m tests.golden.families.parity` measures the differences again,
`python -m scripts.families` writes this page, and `python -m scripts.figures` draws the pictures.
"""


def page() -> str:
    """The page's text."""
    every = sorted(families(), key=lambda family: family.title.casefold())
    mixtures = [family for family in every if family.has_experts]
    # Files of the awkward cases name nothing that has a default, nor the version.
    made = [case["config"].get("transformers_version", "") for case in cases().values()]
    differences = DIFFERENCES.format(
        version=max(made), cases=len(made), prompt=len(PROMPT), greedy=NUM_GREEDY
    )
    words_of_encoders, *table_of_encoders = encoders.section()
    words_of_rerankers, *table_of_rerankers = rerankers.section()
    decoders = [[*described(one, COLUMNS), difference(one)] for one in every]
    return "".join(
        (
            INTRODUCTION.format(count=len(every), depth=DEPTH),
            table(["family", *COLUMNS, "difference (checkpoints)"], decoders),
            ROUTING,
            table(["family", *EXPERTS], [described(one, EXPERTS) for one in mixtures]),
            NAMES,
            table(["family", "architectures", "what is special"], [names(one) for one in every]),
            differences,
            words_of_encoders,
            table(*table_of_encoders),
            words_of_rerankers,
            table(*table_of_rerankers),
        )
    )


def described(family: Family, columns: dict[str, tuple[Facet, ...]]) -> list[str]:
    return [family.title, *(cell(family.configs, facets) for facets in columns.values())]


def difference(family: Family) -> str:
    """The largest difference of the family's checkpoints, and how many there are."""
    if not family.cases:
        return "—"
    return f"{max(figures()[case] for case in family.cases):.0e} ({len(family.cases)})"


def names(family: Family) -> list[str]:
    architectures = "<br>".join(f"`{name}`" for name in family.architectures)
    return [family.title, architectures, family.special[0].upper() + family.special[1:]]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f'<div class="wide-table" markdown="1">\n\n{text}\n</div>\n'


def write() -> None:
    PAGE.write_text(page(), "utf-8")
