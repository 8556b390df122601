"""Draws guesses with a draft model: k tokens of each sequence, one after the other.

Each step begins with the tokens that the step before has drawn, which stay on the device. The host
launches a step before it reads the tokens of the one before, so it never keeps the device waiting.

Where the device accepts guesses, k further guesses are launched behind a step of the target that
the host has not read (`follow`). The first of these steps computes all that the target's step
feeds and draws, at positions that are known; its sample moves along its row by as many tokens as
there are right guesses, and the steps behind it move with it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int32

from jax_engine.sampling.sampling_inputs import row_fields
from jax_engine.step import Moves, RequestSetup, Row, Runner, Samples, Step, Ticket, Unread

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


@dataclass(slots=True)
class Following:
    """What one sequence needs of the draft model behind a step of the target that is not read.

    Attributes:
        row: As if its last known token were all that is computed. `most` is at least 1, `table` has
            room for all guesses to be right.
        place: Its row of the target's step.
        drawn: The sample of the target's step behind its last known token.
        num_guesses: How many guesses the target's step has for it.
    """

    row: DraftRow
    place: int
    drawn: int
    num_guesses: int


@dataclass(slots=True)
class Drawing:
    """Guesses that are being drawn, and were not read.

    Attributes:
        tickets: The steps that draw them.
        places: The samples that are each sequence's guesses, counted over all these steps.
    """

    tickets: list[Ticket]
    places: list[list[int]]


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

    def follow(self, sequences: list[Following], verified: Ticket) -> Drawing | None:
        """Launches guesses behind those of a step of the target that the host has not read.

        Returns:
            None, and nothing is launched, if the step has drawn more tokens than can be fed.
        """
        rows, places = [one.row for one in sequences], [one.place for one in sequences]
        num_drawn = sum(1 + one.num_guesses for one in sequences)
        if num_drawn > self.runner.capabilities.max_samples:
            return None
        fed, samples = self._windows(sequences)
        unread = Unread([verified], verified, places, along=True)
        drawing = Drawing([self._start(rows, fed, samples, unread)], [[] for _ in rows])
        going, first = list(range(len(rows))), 0
        for count in range(1, max(row.most for row in rows) + 1):
            for place, i in enumerate(going):
                drawing.places[i].append(first + place)
            drew, going = going, [i for i in going if rows[i].most > count]
            if going:
                fed = self._next_rows(rows, drew, going, count)
                unread = Unread([drawing.tickets[-1]], verified, [places[i] for i in going])
                samples = Samples(list(range(len(going))), [rows[i].index for i in going])
                ticket = self._start([rows[i] for i in going], fed, samples, unread)
                drawing.tickets.append(ticket)
            first += len(drew)
        return drawing

    def read(self, drawing: Drawing) -> list[list[int]]:
        """The guesses of each sequence."""
        steps = [self.runner.collect(ticket).token_ids for ticket in drawing.tickets]
        tokens = [token for step in steps for token in step]
        return [[tokens[i] for i in places] for places in drawing.places]

    def _windows(self, sequences: list[Following]) -> tuple[list[Row], Samples]:
        """Rows with all that a step of the target feeds and draws.

        The sample lies behind the first token drawn: where it is if no guess was right.
        """
        sizes = [2 + one.num_guesses for one in sequences]
        decodes = sum(sizes) <= MOST_DECODES
        rows, tokens, begin = [], [], 0
        for one, size in zip(sequences, sizes, strict=True):
            drawn = [-(one.drawn + i + 1) for i in range(size - 1)]
            fed = [*one.row.token_ids, *drawn]
            setup, index = one.row.setup, one.row.index
            num_draft = size - 1 if decodes else 0
            rows.append(Row(index, setup.number, one.row.start, fed, num_draft=num_draft))
            tokens.append(begin + 1)
            begin += size
        return rows, Samples(tokens, [one.row.index for one in sequences])

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
        fed = self._next_rows(rows, drew, going, count - 1)
        return self._launch([rows[i] for i in going], fed, list(range(len(going))))

    def _next_rows(
        self, rows: list[DraftRow], drew: list[int], going: list[int], behind: int
    ) -> list[Row]:
        """The last guess of each row that goes on, `behind` positions behind the row's end."""
        sample = {i: place for place, i in enumerate(drew)}
        return [
            Row(rows[i].index, rows[i].setup.number, rows[i].end + behind, [-(sample[i] + 1)])
            for i in going
        ]

    def _launch(self, rows: list[DraftRow], fed: list[Row], drawing: list[int]) -> Ticket:
        """A step of these rows; those in `drawing` draw a token behind their last one."""
        last = np.cumsum([len(row.tokens) for row in fed]) - 1
        samples = Samples([int(last[i]) for i in drawing], [rows[i].index for i in drawing])
        return self._start(rows, fed, samples)

    def _start(
        self, rows: list[DraftRow], fed: list[Row], samples: Samples, unread: Unread | None = None
    ) -> Ticket:
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
            unread=unread,
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
        embeds=None,
        is_special=False,
    )
