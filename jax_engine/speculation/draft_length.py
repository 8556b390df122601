"""How many tokens are worth guessing, by a sequence's guesses so far and by what they cost a step.

A step is padded to a power of two of tokens, so the first guess may cost as much as the next seven.
What a step costs depends on the model, its weights' format and the machine: in bfloat16 on a CPU 8
rows take little longer than one, in 4 bits twice as long. So it is measured.
"""

from collections import deque
from collections.abc import Sequence

# What guesses cost, in plain steps: each of them, and that the step could not be planned ahead.
EACH, ANY = 0.08, 0.03
MEMORY = 0.9  # the weight of what was seen a step ago
PRIOR_TRIALS = 2.0  # of which half were right
LONGEST_REST = 16  # steps


class DraftLength:
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


KEPT = 8  # times of a kind of step; the shortest counts: nothing else slowed that one down
STALE = 1000  # steps after which a time is forgotten, so that an unlucky one is not for ever
GROWTH = 1.25  # of a step's time with its size, where larger ones were not seen yet
# Of the time, what may be lost on guesses that are not expected to pay, so as to learn of those
# that begin to. It is saved up to at most so many plain steps.
TRIALS, MOST_SAVED = 0.01, 1.0


class StepCosts:
    """The times of steps without prompts, by their size.

    Args:
        draft_cost: As in `DraftLength`, of one guess for each sequence. A step's time includes
            what its guesses took to draw.
    """

    def __init__(self, draft_cost: float = 0.0) -> None:
        self._draft_cost = draft_cost
        self._seen: dict[tuple[int, bool], _Times] = {}
        self._num_steps = 0
        self._saved = MOST_SAVED / 2

    def learn(self, num_tokens: int, num_drafts: int, seconds: float) -> None:
        """Takes a step's time, from the end of the step before it.

        Args:
            num_tokens: All of the step, drafts included.
        """
        self._num_steps += 1
        self._saved = min(MOST_SAVED, self._saved + TRIALS)
        size = padded(num_tokens), num_drafts > 0
        self._seen.setdefault(size, _Times()).add(seconds, self._num_steps)

    def ratio(self, rows: int, num_drafts: int) -> float:
        """How long a step with drafts takes, in steps without.

        Where none of its size was seen, it is taken to grow little from the next smaller one: so
        larger steps are tried, and then known.
        """
        likely = 1 + ANY + EACH * num_drafts + self._draft_cost * -(-num_drafts // rows)
        plain = self._seconds(padded(rows), with_drafts=False)
        size, growth = padded(rows + num_drafts), 1.0
        while plain and size:  # a coarse clock may show no time at all
            longer = self._seconds(size, with_drafts=True)
            if longer:
                found = growth * longer / plain
                return found if growth == 1 else min(found, likely)
            size, growth = size // 2, growth * GROWTH
        return likely

    def best_count(self, rows: int, chances: Sequence[float]) -> int:
        """How many guesses give the most tokens a second.

        Args:
            rows: Sequences of the step, each of which gets one token anyway.
            chances: How probable it is that each guess gives a token; the best come first.
        """
        best, best_rate = 0, float(rows)
        for count in range(1, len(chances) + 1):
            if count < len(chances) and padded(rows + count + 1) == padded(rows + count):
                continue  # one more costs nothing
            rate = (rows + sum(chances[:count])) / self.ratio(rows, count)
            if rate > best_rate:
                best, best_rate = count, rate
        return best

    def count(self, rows: int, chances: Sequence[float], *, spends: bool) -> int:
        """`best_count`; or, if it is 0 and enough was saved, the few guesses of a trial.

        Args:
            spends: Whether the step is taken: then a trial's loss is spent.
        """
        best = self.best_count(rows, chances)
        if best or not chances:
            return best
        few = min(len(chances), max(1, padded(rows + 1) - rows))
        loss = self.ratio(rows, few) - (rows + sum(chances[:few])) / rows
        if loss > self._saved:
            return 0
        if spends:
            self._saved -= max(0.0, loss)
        return few

    def _seconds(self, size: int, *, with_drafts: bool) -> float | None:
        times = self._seen.get((size, with_drafts))
        if times is None or self._num_steps - times.last > STALE:
            self._seen.pop((size, with_drafts), None)
            return None
        return times.shortest


class _Times:
    """The times of one kind of step.

    Attributes:
        last: The number of the step that was added last.
    """

    __slots__ = ("_times", "last")

    def __init__(self) -> None:
        self._times: deque[float] | None = None
        self.last: int

    def add(self, seconds: float, number: int) -> None:
        """The first one does not count: it may have compiled the step."""
        self.last = number
        if self._times is None:
            self._times = deque(maxlen=KEPT)
        else:
            self._times.append(seconds)

    @property
    def shortest(self) -> float | None:
        return min(self._times) if self._times else None


def padded(num_tokens: int) -> int:
    """The next power of two."""
    return 1 << max(0, num_tokens - 1).bit_length()
