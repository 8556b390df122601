"""The oracle's engine as an `EngineUnderTest`: what stands beside an engine can stand in its place.

It has no tokenizer, knows no `output_kind`, and tells nothing of its inside: its own tests look
there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from jax_engine.engine.stats import Metric
from reference.engine import ReferenceEngine
from reference.outputs import Request as Asked
from reference.outputs import Sample, outputs
from reference.sequence import Sequence as OneSequence
from reference.sequence import SequenceGroup
from tests.support.engine_under_test import DebugState, Request
from tests.support.some_adapters import some_adapter


@dataclass
class Served:
    """An unfinished request."""

    request: Request
    group: SequenceGroup
    first_token: float | None = None

    def ends(self) -> list[tuple[int, str | None]]:
        return [(seq.output_len, seq.finish_reason) for seq in self.group.seqs]

    @property
    def finished(self) -> bool:
        return all(seq.finished for seq in self.group.seqs)


class InNumpy:
    """
    Attributes:
        running: By request id.
    """

    def __init__(self, reference: ReferenceEngine) -> None:
        self.reference = reference
        self.clock: Callable[[], float] = lambda: 0.0
        self.running: dict[str, Served] = {}

    def add(self, request: Request) -> None:
        """Raises BadParameters, AdmissionError, or ValueError if the id is taken."""
        name, params = request.request_id, request.parameters()
        if name in self.running:
            raise ValueError(f"request_id {name!r} is taken")
        self.reference.add_request(
            name, request.prompt, params, arrival_time=request.arrival_time,
            priority=request.priority, cache_salt=request.cache_salt,
            adapter=None if request.adapter is None else some_adapter(request.adapter),
            prompt_embeds=request.prompt_embeds(),
        )  # fmt: skip
        self.running[name] = Served(request, self.reference.scheduler.groups[name])

    def abort(self, request_ids: Sequence[str]) -> list[Any]:
        aborted = [one for one in request_ids if self.reference.abort_request(one)]
        return [self._output(self.running.pop(one)) for one in aborted]

    def step(self) -> list[Any]:
        """All there is so far of whom there is anything new; of a beam search at its end alone."""
        changed = self.advance()
        return [self._output(one) for one in changed if one.finished or not one.group.beam_search]

    def advance(self) -> list[Served]:
        """A step without outputs; of whom there is anything new."""
        before = [(served, served.ends()) for served in self.running.values()]
        for served, _ in before:
            request = served.request
            if (
                request.timeout is not None
                and self.clock() >= request.arrival_time + request.timeout
            ):
                self.reference.scheduler.abort(request.request_id, "timeout")
        self.reference.step()
        for served, _ in before:
            if served.first_token is None and any(count for count, _ in served.ends()):
                served.first_token = self.clock()
        self.running = {name: one for name, one in self.running.items() if not one.finished}
        return [served for served, ends in before if served.ends() != ends]

    def is_busy(self) -> bool:
        return self.reference.has_unfinished_requests()

    def debug_state(self) -> DebugState | None:
        return None

    def get_metrics(self) -> list[Metric]:
        raise NotImplementedError("asked only of an engine that has a debug_state")

    def _output(self, served: Served) -> Any:
        group, prompt, over = served.group, served.request.prompt, served.finished
        params: Any = group.params
        rows: Any = (group.prompt_logprobs or [])[1:]
        computed = all(row is not None for row in rows)
        if not computed:  # it was aborted before
            params = replace(params, prompt_logprobs=None)
        samples = [
            Sample(seq.output_token_ids, _rows(seq), seq.finish_reason, seq.stop_reason)  # type: ignore[arg-type]
            for seq in (group.best if group.beam_search else group.seqs)
        ]
        # One that was to begin when all was aborted is there, too
        counts = {i: len(one.token_ids) for i, one in enumerate(samples) if one.token_ids or over}
        asked = Asked(None, params, prompt, samples, rows)
        made, *_ = outputs(asked, [counts] if over else [counts, counts])
        return SimpleNamespace(
            request_id=served.request.request_id,
            prompt_token_ids=prompt,
            num_cached_tokens=max(0, group.num_cached_tokens),
            metrics=SimpleNamespace(
                arrival_time=group.arrival_time,
                first_token_time=served.first_token,
                finished_time=self.clock() if over else None,
            ),
            **vars(made) | ({} if computed else {"prompt_logprobs": [None] * len(prompt)}),
        )


def _rows(seq: OneSequence) -> list[np.ndarray]:
    """V log-probabilities for each token; if nobody asked for them, only the token's own."""
    if seq.distributions is not None:
        return seq.distributions
    rows = [np.full(token + 1, -np.inf) for token in seq.output_token_ids]
    for row, logprob in zip(rows, seq.logprobs, strict=True):
        row[-1] = logprob
    return rows
