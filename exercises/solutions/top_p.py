"""The rule, read aloud."""

from collections.abc import Sequence


def keep_top_p(probabilities: Sequence[float], p: float) -> list[int]:
    def before(probability: float) -> float:
        return sum(other for other in probabilities if other > probability)

    return [token for token, one in enumerate(probabilities) if before(one) < p]


ANSWER = keep_top_p
