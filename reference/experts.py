"""A mixture of experts: many feed-forward networks, of which each token uses a few.

A router scores the experts for a token. The best ones work on it, and their outputs are added up,
each times its weight. So a model can have many parameters and compute with few of them for each
token. Here a token goes to its experts one after another; no token is ever dropped.
"""

import numpy as np
from jaxtyping import Float

from reference.activations import sigmoid
from reference.transformer_config import ExpertsConfig


def route(
    logits: Float[np.ndarray, "X"],
    config: ExpertsConfig,
    selection_bias: Float[np.ndarray, "X"] | None = None,
) -> list[tuple[int, float]]:
    """The experts that one token uses, best first, each with its weight.

    Of equally good experts, or groups of them, the first one wins.

    >>> logits = np.log([1.0, 4.0, 2.0, 1.0])
    >>> route(logits, ExpertsConfig(4, 2, width=1))
    [(1, 0.5), (2, 0.25)]
    >>> [(e, round(w, 4)) for e, w in route(logits, ExpertsConfig(4, 2, 1, "chosen_softmax"))]
    [(1, 0.6667), (2, 0.3333)]
    >>> bias = np.array([0.0, 0.0, 0.0, 9.0])  # decides who is chosen, not how much it counts
    >>> chosen = route(logits, ExpertsConfig(4, 2, 1, "sigmoid", selection_bias=True), bias)
    >>> [(e, round(w, 4)) for e, w in chosen]
    [(3, 0.5), (1, 0.8)]
    >>> route(np.array([40.0, 50.0]), ExpertsConfig(2, 1, 1, "chosen_sigmoid"))
    [(1, 1.0)]
    """
    scores = _scores(logits.astype(np.float64), config)
    appeal = scores if selection_bias is None else scores + selection_bias
    eligible = _of_best_groups(appeal, config)
    chosen = sorted(eligible, key=lambda expert: (-appeal[expert], expert))[: config.num_chosen]
    weights = scores[chosen]
    if config.scores == "chosen_softmax":
        weights = _softmax(weights)
    elif config.scores == "chosen_sigmoid":
        weights = sigmoid(weights)
    if config.renormalise:
        weights = weights / weights.sum()
    return [(e, float(w * config.scaling)) for e, w in zip(chosen, weights, strict=True)]


def _scores(logits: Float[np.ndarray, "X"], config: ExpertsConfig) -> Float[np.ndarray, "X"]:
    match config.scores:
        case "softmax":
            return _softmax(logits)
        case "sigmoid":
            return sigmoid(logits)
    return logits


def _softmax(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    powers = np.exp(x - x.max())
    return np.asarray(powers / powers.sum())


def _of_best_groups(appeal: Float[np.ndarray, "X"], config: ExpertsConfig) -> list[int]:
    """The experts of a token's best groups; of all, if there is one group."""
    groups = np.split(np.arange(config.num_experts), config.num_groups)
    worth = [np.sort(appeal[group])[-config.experts_judged :].sum() for group in groups]
    best = sorted(range(len(groups)), key=lambda group: (-worth[group], group))
    return [int(e) for group in best[: config.num_top_groups] for e in groups[group]]
