"""Which tokens a request may draw next, worked out on the host while the device runs the model.

What allows or forbids single tokens whatever the output is a static mask, packed once a request.
Longer bad words, a guide and logits processors depend on the last token, which the host must know:
`needs_last_token`.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jax_engine.core.output import ScheduledSequence
from jax_engine.core.sequence import SequenceGroup
from jax_engine.core.stopping import NO_TOKEN
from jax_engine.guided.guide import Guide, fill_masks, reason_of
from jax_engine.sampling.bad_words import completing_tokens
from jax_engine.sampling.processors import Processor, run_processors
from jax_engine.sampling.token_bits import as_booleans, num_words

logger = logging.getLogger("jax_engine")
ALL = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class RequestConstraints:
    """What restricts one request's tokens beyond penalties and bias.

    Attributes:
        allowed: Bits [words] of `allowed_token_ids` (of all tokens, without them) less the bad
            words of one token.
        ends: Bits of the tokens that end a sequence, forbidden before `min_tokens`.
        bad_words: Those of two tokens and more.
        processors: In order.
        guide: The grammar, and where each sequence is in it.
    """

    allowed: np.ndarray
    ends: np.ndarray
    min_tokens: int
    bad_words: list[list[int]]
    processors: list[Processor]
    guide: Guide | None

    @property
    def needs_last_token(self) -> bool:
        return bool(self.bad_words or self.processors or self.guide is not None)


@dataclass(frozen=True, slots=True)
class ConstrainedRows:
    """The rows of one sequence in a step: one, or n of a prompt about to fork."""

    item: ScheduledSequence
    constraints: RequestConstraints
    rows: slice

    @property
    def output(self) -> list[int]:
        return self.item.seq.output_token_ids


@dataclass(slots=True)
class StepConstraints:
    """The constraints of one split step.

    Attributes:
        parts: One for each constrained sequence that is sampled.
        num_rows: Of the step, padding included.
        failed: Requests that cannot go on, with the reason; filled as it is found.
        seconds: Spent on masks.
    """

    parts: list[ConstrainedRows]
    num_rows: int
    vocab_size: int
    failed: dict[SequenceGroup, str] = field(default_factory=dict)
    seconds: float = 0.0

    def mask(self) -> np.ndarray:
        """uint32 [R, words]: the tokens that each row may draw; all for rows without constraints.

        Bad words and `min_tokens` may leave nothing of what the others allow: such a request has
        failed, unless it is a beam search.
        """
        started = time.perf_counter()
        mask = np.full((self.num_rows, num_words(self.vocab_size)), ALL)
        self._fill_guides(mask)
        for part in self.parts:
            constraints, row = part.constraints, mask[part.rows.start]
            row &= constraints.allowed
            for token in completing_tokens(constraints.bad_words, part.output):
                row[token // 32] &= ~(np.uint32(1) << np.uint32(token % 32))
            self._note_stuck(part, row & ~self._forbidden_ends(part))
            mask[part.rows] = row
        self.seconds += time.perf_counter() - started
        return mask

    def process(self, logits: Callable[[], np.ndarray], mask: np.ndarray) -> np.ndarray | None:
        """The logits [R, V] after the requests' own processors; None where there are none.

        Args:
            logits: Waits for the model and brings them to the host.
        """
        parts = [part for part in self.parts if part.constraints.processors]
        if not parts:
            return None
        edited = np.array(logits())
        for part in parts:
            seq, group, first = part.item.seq, part.item.group, part.rows.start
            prompt = seq.token_ids[: group.prompt_len]
            try:
                row = run_processors(
                    part.constraints.processors, prompt, part.output, edited[first]
                )
            except Exception as error:  # the user's code: it must not take the others down
                logger.exception("request %s: a logits processor failed", group.request_id)
                self.failed[group] = f"a logits processor raised {error!r}"
                continue
            edited[part.rows] = row
            left = as_booleans(mask[first] & ~self._forbidden_ends(part), self.vocab_size)
            self._note_stuck(part, left & (row > -np.inf))
        return edited

    def _note_stuck(self, part: ConstrainedRows, left: np.ndarray) -> None:
        """The request fails if nothing is left; a beam may die, and the others go on."""
        if part.item.group.beam is None and not left.any():
            self.failed.setdefault(part.item.group, NO_TOKEN)

    def _fill_guides(self, mask: np.ndarray) -> None:
        guided = [part for part in self.parts if part.constraints.guide is not None]
        if not guided:
            return
        by_guide: dict[Guide, list[ConstrainedRows]] = {}
        for part in guided:
            by_guide.setdefault(part.constraints.guide, []).append(part)  # type: ignore[arg-type]
        pairs = []
        for guide, parts in by_guide.items():
            group = parts[0].item.group
            matchers = guide.matchers([part.item.seq for part in parts], group.unfinished())
            pairs += [(matcher, part) for matcher, part in zip(matchers, parts, strict=True)]
        fill_masks([(matcher, part.rows.start) for matcher, part in pairs], mask)
        for matcher, part in pairs:
            if matcher.is_error():
                self.failed[part.item.group] = f"its grammar failed: {reason_of(matcher)}"

    def _forbidden_ends(self, part: ConstrainedRows) -> np.ndarray | np.uint32:
        """As the sampler counts: a token that is pending is one of the output."""
        output_len = part.item.seq.num_tokens - part.item.group.prompt_len
        constraints = part.constraints
        return constraints.ends if output_len < constraints.min_tokens else np.uint32(0)
