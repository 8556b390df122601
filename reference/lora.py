"""LoRA: a small change of a matrix, kept apart from it (Hu et al., 2021).

Training an adapter leaves a matrix W [out, in] as it is, and learns two thin ones, A [r, in] and
B [out, r], whose product is added to it:

    W' = W + s B A          s = alpha / r, or alpha / sqrt(r) with rank-stabilised scaling

The rank r is small, 8 or 16, so an adapter has a hundredth of the model's numbers. A server can
hold one W and many adapters, and compute W x + s B (A x) with the adapter of each request. Here the
adapter is simply added to the weights, which makes a model of its own: whatever a server computes
for a request with this adapter must be what the merged model computes for it.

>>> w = np.array([[1.0, 0.0], [0.0, 1.0]])
>>> a, b = np.array([[1.0, 2.0]]), np.array([[3.0], [0.0]])      # of rank 1
>>> merged(w, a, b, scaling=0.5).tolist()
[[2.5, 3.0], [0.0, 1.0]]
>>> x = np.array([1.0, 1.0])
>>> (merged(w, a, b, 0.5) @ x).tolist(), (w @ x + 0.5 * (b @ (a @ x))).tolist()
([5.5, 1.0], [5.5, 1.0])

B is zeros when training begins, so that it begins with the model itself:

>>> merged(w, a, np.zeros((2, 1)), 0.5).tolist()
[[1.0, 0.0], [0.0, 1.0]]
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from jaxtyping import Float


class Adapted(Protocol):
    """What an adapter has for one module of the model."""

    @property
    def name(self) -> str:
        """The module: its matrix is called `name.weight`."""

    @property
    def a(self) -> Float[np.ndarray, "r in"]: ...

    @property
    def b(self) -> Float[np.ndarray, "out r"]: ...

    @property
    def scaling(self) -> float: ...

    @property
    def bias(self) -> Float[np.ndarray, " out"] | None:
        """A vector that is added to B (A x), and scaled with it."""


def scaling(alpha: float, rank: int, rank_stabilised: bool = False) -> float:
    """s: with it, an adapter of another rank needs no other learning rate.

    >>> scaling(16, 4), scaling(16, 4, rank_stabilised=True)
    (4.0, 8.0)
    """
    return float(alpha / (np.sqrt(rank) if rank_stabilised else rank))


def merged(
    weight: Float[np.ndarray, "out in"],
    a: Float[np.ndarray, "r in"],
    b: Float[np.ndarray, "out r"],
    scaling: float,
) -> Float[np.ndarray, "out in"]:
    """W + s B A in float64."""
    return weight.astype(np.float64) + scaling * (b.astype(np.float64) @ a.astype(np.float64))


def merged_weights(
    weights: Mapping[str, np.ndarray], adapter: Iterable[Adapted], turned: Iterable[str] = ()
) -> dict[str, np.ndarray]:
    """All weights of a model, those of adapted modules merged in float64.

    An embedding is a matrix whose columns are looked up: of a token's unit vector, A x is a column
    of A. Checkpoints store it turned, a row for each token.

    Args:
        turned: the modules whose matrix is stored as [in, out]: embeddings, and GPT-2's products.

    >>> from types import SimpleNamespace
    >>> one = SimpleNamespace(a=np.array([[1.0, 2.0]]), b=np.array([[3.0]]), scaling=2.0, bias=None)
    >>> model = {"up.weight": np.array([[1.0, 1.0]]), "embed.weight": np.array([[1.0], [1.0]])}
    >>> up, embed = (SimpleNamespace(name=name, **vars(one)) for name in ("up", "embed"))
    >>> {name: w.tolist() for name, w in merged_weights(model, [up, embed], ["embed"]).items()}
    {'up.weight': [[7.0, 13.0]], 'embed.weight': [[7.0], [13.0]]}

    A module without a bias gets the adapter's:

    >>> up.bias = np.array([0.25])
    >>> merged_weights(model, [up])["up.bias"].tolist()
    [0.5]
    >>> merged_weights(model | {"up.bias": np.array([1.0])}, [up])["up.bias"].tolist()
    [1.5]

    An expert is a module of its own. Where a mixture has one tensor of all experts of a layer, it
    is an element of that:

    >>> expert = SimpleNamespace(name="experts.up[1]", **vars(one))
    >>> expert.bias = None
    >>> merged_weights({"experts.up": np.ones((2, 1, 2))}, [expert])["experts.up"].tolist()
    [[[1.0, 1.0]], [[7.0, 13.0]]]
    """
    found, stored_turned = dict(weights), set(turned)
    for one in adapter:
        if one.name.endswith("]"):
            _merge_expert(found, one, one.name in stored_turned)
            continue
        name = f"{one.name}.weight"
        weight = found[name].T if one.name in stored_turned else found[name]
        new = merged(weight, one.a, one.b, one.scaling)
        found[name] = new.T if one.name in stored_turned else new
        if one.bias is not None:
            before = found.get(f"{one.name}.bias", np.zeros(len(new)))
            found[f"{one.name}.bias"] = before + one.scaling * one.bias.astype(np.float64)
    return found


def _merge_expert(found: dict[str, np.ndarray], one: Adapted, turned: bool) -> None:
    """Merges an element of a tensor of all experts, which gets a copy in its place."""
    stem, _, number = one.name.removesuffix("]").rpartition("[")
    name = stem if stem in found else f"{stem}.weight"
    stacked = found[name].astype(np.float64)
    own = stacked[int(number)].T if turned else stacked[int(number)]
    own[...] = merged(own, one.a, one.b, one.scaling)
    found[name] = stacked
