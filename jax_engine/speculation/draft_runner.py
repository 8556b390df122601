"""Draws guesses with a draft model: k tokens of each sequence, one after the other.

Each step begins with the tokens that the step before has drawn, which stay on the device. The host
launches a step before it reads the tokens of the one before, so it never keeps the device waiting.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int32

from jax_engine.sampling.inputs import row_fields
from jax_engine.step import Moves, RequestSetup, Row, Runner, Samples, Step, Ticket

# Outputs' tokens, up to so many in a step, are computed as decodes. A step of two tokens then has
# two rows, and is not padded like one with a prompt.
MOST_DECODES = 32


@dataclass(slots=True)
class DraftRow:
    """What one sequence needs of the draft model.

    Attributes:
        setup: Its request.
        index: Which of the request's samples it is.
        start: The first position that is computed.
        token_ids: The tokens at `start` and behind it.
        table: [W] The block of each B positions, with those of guesses.
        most: How many guesses are drawn behind them; 0 for none.
    """

    setup: RequestSetup
    index: int
    start: int
    token_ids: list[int]
    table: Int32[np.ndarray, " W"]
    most: int

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


class DraftRunner:
    """A runner with a draft model.

    Args:
        prepare: What the runner is told of a request.

    Attributes:
        runner: It serves nobody else.
    """

    def __init__(self, runner: Runner, prepare: Callable[[RequestSetup], RequestSetup]) -> None:
        self.runner, self._prepare = runner, prepare
        self._open: set[int] = set()
        self._closed: list[int] = []

    def draw(self, rows: list[DraftRow]) -> list[list[int]]:
        """The guesses for each row. All that it starts has ended when it returns."""
        drawn: list[list[int]] = [[] for _ in rows]
        drawing = [i for i, row in enumerate(rows) if row.most]
        ticket, count = self._launch(rows, self._first_rows(rows), drawing), 1
        while True:
            going = [i for i in drawing if rows[i].most > count]
            following = self._launch_next(rows, drawing, going, count) if going else None
            for i, token in zip(drawing, self.runner.collect(ticket).token_ids, strict=True):
                drawn[i].append(token)
            if following is None:
                return drawn
            ticket, drawing, count = following, going, count + 1

    def close(self, numbers: Iterable[int]) -> None:
        """Forgets requests, by their numbers; they may come again."""
        known = self._open.intersection(numbers)
        self._open -= known
        self._closed += known

    def recover(self) -> None:
        """Forgets all requests after a failure. The cache's contents are lost."""
        self._open.clear()
        self._closed.clear()
        self.runner.recover()

    def _first_rows(self, rows: list[DraftRow]) -> list[Row]:
        in_outputs = all([row.start >= len(row.setup.prompt_token_ids) for row in rows])
        decodes = in_outputs and sum([len(row.token_ids) for row in rows]) <= MOST_DECODES
        return [
            Row(
                row.index,
                row.setup.number,
                row.start,
                row.token_ids,
                num_draft=len(row.token_ids) - 1 if decodes else 0,
            )
            for row in rows
        ]

    def _launch_next(
        self, rows: list[DraftRow], drew: list[int], going: list[int], count: int
    ) -> Ticket:
        """Feeds the last guess of each row that goes on, of which `count` are drawn."""
        sample = {i: place for place, i in enumerate(drew)}
        fed = [
            Row(rows[i].index, rows[i].setup.number, rows[i].end + count - 1, [-(sample[i] + 1)])
            for i in going
        ]
        return self._launch([rows[i] for i in going], fed, list(range(len(going))))

    def _launch(self, rows: list[DraftRow], fed: list[Row], drawing: list[int]) -> Ticket:
        """A step of these rows; those in `drawing` draw a token behind their last one."""
        last = np.cumsum([len(row.tokens) for row in fed]) - 1
        samples = Samples([int(last[i]) for i in drawing], [rows[i].index for i in drawing])
        setups = {row.setup.number: row.setup for row in rows}
        opened = [self._prepare(one) for number, one in setups.items() if number not in self._open]
        closed, self._closed = self._closed, []
        # One that was closed and comes again is opened anew by this step, so it must not be closed
        step = Step(
            fed,
            samples,
            np.stack([row.table for row in rows]),
            Moves([], [], []),
            opened,
            [number for number in closed if number not in setups],
        )
        self._open |= setups.keys()
        return self.runner.launch(step)


def draft_setup(setup: RequestSetup, *, greedy: bool, vocab_size: int) -> RequestSetup:
    """What a draft model is told of a request: it draws tokens, and gives nothing else.

    The request's bias and its least length count for guesses as well, its penalties do not.

    Args:
        greedy: Whether it guesses the most probable token, or draws as the request does.
        vocab_size: Tokens that the draft model knows; 0 if it knows none of them.
    """
    places, rows = row_fields(), setup.rows.copy()
    rows[:, places["want_logprobs"]] = 0
    if greedy:
        rows[:, places["temperature"]] = 0  # the bits of 0.0
    bias = setup.bias[:, setup.bias[0] < vocab_size]
    forbidden = setup.forbidden[:, setup.forbidden[0] < vocab_size]
    min_tokens = setup.min_tokens if forbidden.size else 0
    return replace(
        setup,
        rows=rows,
        bias=bias,
        forbidden=forbidden,
        min_tokens=min_tokens,
        edits_logits=bool(bias.size) or min_tokens > 0,
        has_penalties=False,
        wants_logprobs=False,
        needs_logits=False,
        prompt_logprobs=None,
        pooling=False,
        token_states=False,
        is_special=False,
    )
