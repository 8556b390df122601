"""An encoder: a transformer whose tokens see the whole text, and what makes one vector of it.

A decoder's token sees those before it, since they are all there is when it is drawn (2.1). An
encoder draws nothing: a text is read once, whole, and each token sees all of it, or a window to
both sides. So there is no cache, no chunk of a prompt, and no order of steps that could matter.
What is left of the rules is the sum of attention, where the norms are, and the pooling:

    CLS    the state of the first token, which BERT's tokenizer puts there for that
    LAST   the state of the last token
    MEAN   the mean of all states

Each text is computed alone, and each matrix is applied to one token at a time. So a text's vector
depends on the text and on nothing else, bit by bit.

Legend: n tokens of a text, H heads, D head dim, E model width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from reference.activations import activate, gate
from reference.attention import softmax_attention
from reference.linear import linear
from reference.norms import normalise
from reference.rope import apply_rope, rope_frequencies


@dataclass(frozen=True)
class EncoderConfig:
    """The switches between families.

    Attributes:
        thetas, windows: How each layer rotates, and how far it sees; None: it does not
            rotate, or it sees all. A token at position i sees position j if |i - j| < window.
        post_norm: Whether norms are of sums, as in BERT; else of what a part reads.
        gated: Whether the feed-forward network has a gate.
        first_position: The row of position 0 in the table of positions, if there is a table.
    """

    num_heads: int
    thetas: tuple[float | None, ...]
    windows: tuple[int | None, ...]
    activation: str
    eps: float
    post_norm: bool
    gated: bool
    first_position: int = 0


def bidirectional_attention(
    q: Float[np.ndarray, "n H D"],
    k: Float[np.ndarray, "n H D"],
    v: Float[np.ndarray, "n H D"],
    window: int | None = None,
) -> Float[np.ndarray, "n H D"]:
    """Each token of one text looks at all of them, or at those nearer than `window`.

    With equal keys, the mean of what is seen:

    >>> q, v = np.zeros((3, 1, 1)), np.array([[[1.0]], [[2.0]], [[6.0]]])
    >>> bidirectional_attention(q, q, v).ravel().tolist()
    [3.0, 3.0, 3.0]
    >>> bidirectional_attention(q, q, v, window=2).ravel().tolist()
    [1.5, 3.0, 4.0]
    """
    count, out = len(q), np.empty_like(v)
    reach = count if window is None else window
    for i in range(count):
        seen = slice(max(0, i - reach + 1), i + reach)
        for head in range(q.shape[1]):
            scores = k[seen, head].astype(np.float64) @ q[i, head] / np.sqrt(q.shape[2])
            out[i, head] = softmax_attention(scores, v[seen, head])
    return out


def pool(
    states: Float[np.ndarray, "n E"], way: str, *, normalize: bool = True
) -> Float[np.ndarray, "E"]:
    """One vector of a text's states, as a rule of length 1. Raises ValueError for an unknown way.

    >>> states = np.array([[3.0, 4.0], [1.0, 0.0]])
    >>> pool(states, "CLS").tolist(), pool(states, "LAST").tolist()
    ([0.6, 0.8], [1.0, 0.0])
    >>> pool(states, "MEAN", normalize=False).tolist()
    [2.0, 2.0]
    """
    exact = states.astype(np.float64)
    match way:
        case "CLS":
            vector = exact[0]
        case "LAST":
            vector = exact[-1]
        case "MEAN":
            vector = exact.mean(axis=0)
        case _:
            raise ValueError(f"way must be CLS, LAST or MEAN, found {way!r}")
    return np.asarray(vector / np.linalg.norm(vector) if normalize else vector)


class Encoder:
    """The encoder. Weights are named after their places: see `states`; matrices are [out, in]."""

    def __init__(self, config: EncoderConfig, weights: Mapping[str, np.ndarray]) -> None:
        self.config, self.weights = config, weights

    def states(
        self, token_ids: Int[np.ndarray, "n"], token_types: Int[np.ndarray, "n"] | None = None
    ) -> Float[np.ndarray, "n E"]:
        """The hidden states of one text."""
        config, weights = self.config, self.weights
        x = weights["embed.weight"][token_ids]
        if "positions.weight" in weights:
            x = x + weights["positions.weight"][config.first_position :][: len(x)]
        if "token_types.weight" in weights:
            types = np.zeros(len(x), int) if token_types is None else token_types
            x = x + weights["token_types.weight"][types]
        x = self._norm("embed_norm", x)
        for layer in range(len(config.thetas)):
            x = self._layer(layer, x)
        return self._norm("norm", x)

    def _layer(self, layer: int, x: Float[np.ndarray, "n E"]) -> Float[np.ndarray, "n E"]:
        name = f"layers.{layer}"
        if self.config.post_norm:
            x = self._norm(f"{name}.attention_norm", x + self._attention(layer, x))
            return self._norm(f"{name}.mlp_norm", x + self._network(layer, x))
        x = x + self._attention(layer, self._norm(f"{name}.attention_norm", x))
        return np.asarray(x + self._network(layer, self._norm(f"{name}.mlp_norm", x)))

    def _attention(self, layer: int, x: Float[np.ndarray, "n E"]) -> Float[np.ndarray, "n E"]:
        config = self.config
        joined = linear(self.weights, f"layers.{layer}.qkv", x)
        q, k, v = np.split(joined.reshape(len(x), 3 * config.num_heads, -1), 3, axis=1)
        theta = config.thetas[layer]
        if theta is not None:
            frequencies, _ = rope_frequencies(q.shape[2], theta, len(x))
            q, k = (apply_rope(one, np.arange(len(x)), frequencies) for one in (q, k))
        out = bidirectional_attention(q, k, v, config.windows[layer])
        return linear(self.weights, f"layers.{layer}.o", out.reshape(len(x), -1))

    def _network(self, layer: int, x: Float[np.ndarray, "n E"]) -> Float[np.ndarray, "n E"]:
        hidden, activation = linear(self.weights, f"layers.{layer}.up", x), self.config.activation
        if self.config.gated:  # the rows of the gate, then those of up
            gates, up = np.split(hidden, 2, axis=1)
            bent = gate(activation, gates, up)
        else:
            bent = activate(activation, hidden)
        return linear(self.weights, f"layers.{layer}.down", bent.astype(x.dtype))

    def _norm(self, name: str, x: Float[np.ndarray, "n E"]) -> Float[np.ndarray, "n E"]:
        """A layer norm, or nothing where the model has none of this name."""
        weight = self.weights.get(f"{name}.weight")
        if weight is None:
            return x
        bias = self.weights.get(f"{name}.bias")
        return normalise(x, weight, bias, kind="layer", eps=self.config.eps).astype(x.dtype)
