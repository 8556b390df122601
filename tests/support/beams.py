"""A stub model for beam searches: log-probabilities that depend on the tokens before alone."""

import math
import random
from collections.abc import Sequence
from typing import Any

from jax_engine.core import Scheduler, SchedulerOutput

VOCABULARY = 6
TOKEN = 7  # of requests that only sample


def beam_params(**changes: Any) -> dict[str, Any]:
    """Parameters of a beam search, for `tests.core.build.make_group`."""
    settings = {"use_beam_search": True, "length_penalty": 1.0, "early_stopping": False}
    return {**settings, **changes}


def candidates_after(token_ids: Sequence[int]) -> list[tuple[int, float]]:
    """All tokens with their log-probabilities, best first."""
    generator = random.Random(repr(list(token_ids)))
    weights = [generator.random() ** 3 + 1e-3 for _ in range(VOCABULARY)]
    total = math.log(sum(weights))
    pairs = [(token, math.log(weight) - total) for token, weight in enumerate(weights)]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def step_beams(scheduler: Scheduler, output: SchedulerOutput | None = None) -> SchedulerOutput:
    """The rest of a planned step, or a whole one; what was scheduled in it."""
    output = scheduler.schedule() if output is None else output
    sampled: dict[int, Any] = {}
    for item in output.scheduled:
        if item.num_samples:
            beams = item.group.beam is not None
            sampled[item.seq.seq_id] = (
                candidates_after(item.seq.token_ids) if beams else [TOKEN] * item.num_samples
            )
    scheduler.update(sampled)
    return output
