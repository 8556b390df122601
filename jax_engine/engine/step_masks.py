"""The allowed tokens of each sample of a masked step, computed while the device runs the model.

Grammars and logits processors stay with the controller, even if the runner is in another process:
the runner gets a bit for each token, or edited logits (`jax_engine.step`).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, UInt32

from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.core.stopping import NO_TOKEN
from jax_engine.engine.constraints import RequestConstraints
from jax_engine.guided.guide import Guide, behind, fill_masks, reason_of
from jax_engine.sampling.bad_words import completing_tokens
from jax_engine.sampling.processors import run_processors
from jax_engine.sampling.token_bits import ALL_TOKENS, as_booleans, num_words

logger = logging.getLogger("jax_engine")


@dataclass(frozen=True, slots=True)
class ConstrainedSamples:
    """The samples of a step behind one token of a sequence: one, or n of a prompt about to fork.

    Attributes:
        samples: Their places in `Step.samples`, in which masks and logits have a row for each.
        drafts: Those of the sequence's drafts that stand before them.
    """

    item: ScheduledSequence
    constraints: RequestConstraints
    samples: slice
    drafts: tuple[int, ...] = ()

    @property
    def output(self) -> list[int]:
        return [*self.item.seq.output_token_ids, *self.drafts]


def constrained_samples(plan: SchedulerOutput) -> list[ConstrainedSamples]:
    """The samples of a step that are for requests with constraints."""
    if all([item.group.constraints is None for item in plan.scheduled]):  # most steps
        return []
    found, first = [], 0
    for item in plan.scheduled:
        samples = slice(first, first + item.num_samples)
        first += item.num_draws
        its = item.group.constraints
        if isinstance(its, RequestConstraints) and item.num_samples:
            found.append(ConstrainedSamples(item, its, samples))
            for i in range(1, len(item.drafts) + 1):
                place = slice(samples.start + i, samples.stop + i)
                found.append(ConstrainedSamples(item, its, place, item.drafts[:i]))
    return found


@dataclass(slots=True)
class StepMasks:
    """The constraints of one masked step.

    Attributes:
        parts: One for each constrained sequence that is sampled; at least one.
        num_samples: Tokens that the step draws.
        failed: Requests that cannot go on, with the reason; filled during the computation.
        verified: How many draws of a sequence with drafts count, by seq_id, where not all do: no
            token is allowed behind the draft that comes then, or its grammar does not allow it.
        seconds: Time spent on masks.
    """

    parts: list[ConstrainedSamples]
    num_samples: int
    vocab_size: int
    failed: dict[SequenceGroup, str] = field(default_factory=dict)
    verified: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    def allowed(self) -> UInt32[np.ndarray, "samples words"]:
        """The tokens that each sample may be; all of them for samples without constraints.

        Together, constraints may leave no token: such a request has failed, unless it is a beam
        search.
        """
        started = time.perf_counter()
        mask = np.full((self.num_samples, num_words(self.vocab_size)), ALL_TOKENS)
        self._fill_guides(mask)
        for part in self.parts:
            constraints, row = part.constraints, mask[part.samples.start]
            row &= constraints.allowed
            for token in completing_tokens(constraints.bad_words, part.output):
                row[token // 32] &= ~(np.uint32(1) << np.uint32(token % 32))
            self._note_stuck(part, row & ~self._forbidden_ends(part))
            mask[part.samples] = row
        self.seconds += time.perf_counter() - started
        return mask

    def process(
        self, logits: Callable[[], np.ndarray], mask: UInt32[np.ndarray, "samples words"]
    ) -> Float[np.ndarray, "samples V"] | None:
        """The logits after the requests' own processors; None without processors.

        Args:
            logits: Waits for the model and returns its logits [samples, V] on the host.
        """
        parts = [part for part in self.parts if part.constraints.processors]
        if not parts:
            return None
        edited = np.array(logits())
        for part in parts:
            seq, group, first = part.item.seq, part.item.group, part.samples.start
            prompt = seq.token_ids[: group.prompt_len]
            try:
                row = run_processors(
                    part.constraints.processors, prompt, part.output, edited[first]
                )
            except Exception as error:  # user code must not fail other requests
                logger.exception("request %s: a logits processor failed", group.request_id)
                self.failed[group] = f"a logits processor raised {error!r}"
                continue
            edited[part.samples] = row
            left = as_booleans(mask[first] & ~self._forbidden_ends(part), self.vocab_size)
            self._note_stuck(part, left & (row > -np.inf))
        return edited

    def _note_stuck(self, part: ConstrainedSamples, left: np.ndarray) -> None:
        """Fails a request without tokens left; a beam may die while the others go on."""
        if part.item.group.beam is None and not left.any():
            self._note_failed(part, NO_TOKEN)

    def _note_failed(self, part: ConstrainedSamples, reason: str) -> None:
        """Behind a draft nothing has failed yet: a plain step comes to that place if it must."""
        if part.drafts:
            seq_id, count = part.item.seq.seq_id, len(part.drafts)
            self.verified[seq_id] = min(count, self.verified.get(seq_id, count))
        else:
            self.failed.setdefault(part.item.group, reason)

    def _fill_guides(self, mask: np.ndarray) -> None:
        guided = [part for part in self.parts if part.constraints.guide is not None]
        if not guided:
            return
        by_guide: dict[Guide, list[ConstrainedSamples]] = {}
        for part in guided:
            by_guide.setdefault(part.constraints.guide, []).append(part)  # type: ignore[arg-type]
        pairs = []
        for guide, parts in by_guide.items():
            group = parts[0].item.group
            matchers = guide.matchers([part.item.seq for part in parts], group.unfinished())
            pairs += [
                (behind(matcher, part.drafts), part)
                for matcher, part in zip(matchers, parts, strict=True)
            ]
        fill_masks([(matcher, part.samples.start) for matcher, part in pairs], mask)
        for matcher, part in pairs:
            if matcher.is_error():
                self._note_failed(part, f"its grammar failed: {reason_of(matcher)}")

    def _forbidden_ends(self, part: ConstrainedSamples) -> np.ndarray | np.uint32:
        """Ends forbidden by `min_tokens`; like the sampler, counts a pending token as output."""
        output_len = part.item.seq.num_tokens + len(part.drafts) - part.item.group.prompt_len
        constraints = part.constraints
        return constraints.ends if output_len < constraints.min_tokens else np.uint32(0)
