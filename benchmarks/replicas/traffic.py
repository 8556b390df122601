"""Conversations with ShareGPT's lengths, behind the system prompts of a few tenants.

The file of lengths has single turns, so how they form conversations is assumed: `ASSUMPTIONS`.
"""

from typing import Final

import numpy as np

from benchmarks.workload import read_lengths
from reference.simulated_replicas import Conversation, Turn

TENANTS: Final = 20
SYSTEM_LEN: Final = (512, 4096)
"""Shortest and longest system prompt in tokens; lengths between them are even on a log scale."""
MEAN_TURNS: Final = 3.5
MEAN_PAUSE_S: Final = 10.0
MEAN_ANSWER_S: Final = 5.0
"""What an answer takes, roughly: only to know how many conversations are under way at first."""
MAX_MODEL_LEN: Final = 8192

ASSUMPTIONS: Final = (
    "Lengths of turns are drawn from benchmarks/data/sharegpt_lengths.csv, each by itself. A "
    f"conversation has a geometric number of turns, {MEAN_TURNS:g} on average, and ends before "
    f"{MAX_MODEL_LEN:,} tokens.",
    f"Each conversation belongs to one of {TENANTS} tenants by Zipf's law (the r-th has a share of "
    f"1/r). Their system prompts have {SYSTEM_LEN[0]} to {SYSTEM_LEN[1]:,} tokens.",
    f"A user pauses {MEAN_PAUSE_S:g} s on average (exponential) between an answer and the next "
    "turn. New conversations come in a Poisson process.",
    "At the start as many conversations are under way as there are at this rate. What was said in "
    "them before is cached nowhere.",
)


class Talk:
    """Draws conversations; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.lengths = read_lengths()
        self.shares = 1 / np.arange(1, TENANTS + 1)
        self.shares /= self.shares.sum()
        self.system_lens = np.rint(np.geomspace(*SYSTEM_LEN, TENANTS)).astype(int)
        self.rng.shuffle(self.system_lens)

    def draw(self, start: float, *, is_old: bool) -> Conversation:
        """One that begins then, or goes on then."""
        system = int(self.rng.choice(TENANTS, p=self.shares))
        system_len = int(self.system_lens[system])
        before = self._turns() if is_old else []
        history_len = sum(one.prompt_len + one.output_len for one in before)
        room = MAX_MODEL_LEN - system_len - history_len
        turns = []
        for turn in self._turns():
            room -= turn.prompt_len + turn.output_len
            if room < 0:
                break
            turns.append(turn)
        if not turns:  # too long, and ended: another one
            return self.draw(start, is_old=is_old)
        return Conversation(start, system, system_len, tuple(turns), history_len)

    def _turns(self) -> list[Turn]:
        """A geometric number of turns, whatever was said before: the law has no memory."""
        picks = self.rng.integers(len(self.lengths), size=self.rng.geometric(1 / MEAN_TURNS))
        pauses = self.rng.exponential(MEAN_PAUSE_S, len(picks))
        chosen = [self.lengths[pick] for pick in picks]
        return [
            Turn(prompt_len, output_len, float(pause))
            for (prompt_len, output_len), pause in zip(chosen, pauses, strict=True)
        ]


def conversations(rate: float, seconds: float, seed: int = 0) -> list[Conversation]:
    """Conversations that begin in so many seconds, and those under way at the start.

    Args:
        rate: Turns a second, by all conversations together, if answers take `MEAN_ANSWER_S`.
        seconds: How long new conversations come.
        seed: The same conversations for the same seed.
    """
    talk = Talk(seed)
    round_s = MEAN_PAUSE_S + MEAN_ANSWER_S
    under_way = talk.rng.poisson(rate * (1 - 1 / MEAN_TURNS) * round_s)
    new = talk.rng.poisson(rate / MEAN_TURNS * seconds)
    starts = talk.rng.uniform(0, round_s, under_way)
    return [talk.draw(float(start), is_old=True) for start in starts] + [
        talk.draw(float(start), is_old=False) for start in talk.rng.uniform(0, seconds, new)
    ]
