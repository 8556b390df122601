"""What the rows of a step ask of the sampler, as the host knows it before the step starts.

`lax.cond` on a GPU makes the host wait until the device knows the branch. By then the model ran,
and no time is left in which the host could plan the next step. So the host says which parts of the
sampler are needed, and each combination is a program of its own. On a CPU the device decides.
"""

from collections.abc import Callable
from typing import NamedTuple

from jax import lax
from jaxtyping import Array, Bool

CANDIDATES = 256  # of the largest logits, among which the filters look for their thresholds first


class Asks(NamedTuple):
    """Whether any row asks for a part of the sampler.

    Attributes:
        draws: A token that is drawn, not the most probable one.
        deviation: Top-n-sigma.
        shortlist: Top-k or top-p.
        long_list: A top-k above `CANDIDATES`.
        nucleus: Top-p.
        logprobs: Log-probabilities.
    """

    draws: bool = False
    deviation: bool = False
    shortlist: bool = False
    long_list: bool = False
    nucleus: bool = False
    logprobs: bool = False


EVERYTHING = Asks(*[True] * len(Asks._fields))
# What most requests ask for: compiled ahead.
USUAL = (Asks(), Asks(draws=True), Asks(draws=True, shortlist=True, nucleus=True))


def branch[T](
    known: bool | None,
    found: Callable[[], Bool[Array, ""]],
    yes: Callable[[], T],
    no: Callable[[], T],
) -> T:
    """The result of `yes` or of `no`: as the host knows; where it does not (None), as found."""
    if known is None:
        result: T = lax.cond(found(), yes, no)
        return result
    return yes() if known else no()
