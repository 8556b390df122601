"""How many tokens are worth guessing for a sequence, judged by its guesses so far."""

# What guesses cost, in plain steps: each of them, and that the step could not be planned ahead.
EACH, ANY = 0.08, 0.03
MEMORY = 0.9  # the weight of what was seen a step ago
PRIOR_TRIALS = 2.0  # of which half were right
LONGEST_REST = 16  # steps


class Pace:
    """The share of guesses that were right, and what follows from it.

    The share counts guesses up to the first wrong one, which is all that a step tells. A sequence
    rests while guesses are not worth their cost: 1 step, then 2, 4, .. up to 16 between two
    attempts. While all rest, steps are planned ahead.

    Args:
        adaptive: If False, it never asks for less.
        draft_cost: What it costs to make a guess, in plain steps; 0 for one that is looked up.
    """

    __slots__ = ("_adaptive", "_draft_cost", "_rest", "_resting", "_right", "_trials")

    def __init__(self, *, adaptive: bool, draft_cost: float = 0.0) -> None:
        self._adaptive, self._draft_cost = adaptive, draft_cost
        self._right, self._trials = PRIOR_TRIALS / 2, PRIOR_TRIALS
        self._rest = 0  # how long the last rest was
        self._resting = 0  # steps of this rest that are left

    def length(self, most: int) -> int:
        """How many guesses to ask for now, at most `most`; 0 while it rests.

        Those that are looked up cost nothing yet: how many are verified is decided later
        (`StepCosts`), by what a step with them costs.
        """
        if not self._adaptive:
            return most
        if self._resting:
            return 0
        return max(1, self._best_length(most)) if self._draft_cost else most

    @property
    def share(self) -> float:
        """The share of guesses that were right."""
        return self._right / self._trials

    def pass_by(self) -> None:
        """A step gave the sequence a token, and no guess was asked for."""
        self._resting = max(0, self._resting - 1)

    def learn(self, num_drafts: int, num_right: int) -> None:
        """What came of the guesses that were asked for; `num_drafts` is 0 if there were none."""
        tried = min(num_drafts, num_right + 1)
        self._right = MEMORY * self._right + num_right
        self._trials = MEMORY * self._trials + tried
        if num_right:
            self._rest = 0
        if not num_drafts or not self._best_length(num_drafts):
            self._rest = min(LONGEST_REST, max(1, 2 * self._rest))
            self._resting = self._rest

    def _best_length(self, most: int) -> int:
        return best_length(self.share, most, EACH + self._draft_cost)


def best_length(share: float, most: int, each: float = EACH) -> int:
    """The number of guesses that makes a sequence fastest, if each is right with this probability.

    A step with k guesses yields 1 + p + .. + p^k tokens, and takes 1 + `ANY` + `each` * k times as
    long as one without.
    """
    best, best_rate = 0, 1.0
    tokens, power = 1.0, 1.0
    for k in range(1, most + 1):
        power *= share
        tokens += power
        rate = tokens / (1 + ANY + each * k)
        if rate > best_rate:
            best, best_rate = k, rate
    return best
