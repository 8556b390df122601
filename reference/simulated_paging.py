"""The real scheduler and block manager as a server for the simulator (4, 6.1).

Nothing is decided here: `Scheduler` plans every step and `BlockManager` places every block, as in
the engine. The model's part is to say a sequence's last token once more, and requests end at the
length that the trace gives. In a beam search the scores decide which beams have children, so they
are drawn too: by Zipf's law, the r-th best token has a share of r**-s, with an s between 1 (the
model is in doubt) and 3 (it is sure) for each beam and step.

>>> from reference.cost_model import StepCost
>>> from reference.simulator import simulate
>>> trace = [TraceRequest(0.0, 100, 3), TraceRequest(0.0, 200, 1), TraceRequest(9.0, 10, 2)]
>>> report = simulate(trace, PagedServer(1024), StepCost(1.0, 0.01))
>>> [round(x, 2) for x in report.latencies]
[6.02, 4.0, 2.11]

Steps in which nothing can change are done at once. When? All running sequences have just one token
to compute, and none writes into a shared block. No one ends: the shortest rest of an output is
longer. No one lacks a block: before each step there are as many free ones as the scheduler asks for
at most, one for each sequence of a group. No one comes in: either nobody waits, or the last step
left the first of the queue where it was, and since then there is only less free memory.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from reference.beam_search import num_candidates
from reference.blocks import BlockManager
from reference.cost_model import Work
from reference.scheduler import Scheduler
from reference.scheduler_config import PreemptionMode, Scheduling
from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import Sequence, SequenceGroup
from reference.simulator import Done, TraceRequest, Usage

VOCABULARY = 1000
"""Tokens that scores are drawn for; what is less probable changes nothing."""


class PagedServer:
    """vLLM as in the paper: `scheduling` "sosp-mixed" puts prompts and decoding into one step."""

    def __init__(
        self,
        num_slots: int,
        *,
        block_size: int = 16,
        scheduling: Scheduling = "sosp-mixed",
        preemption_mode: PreemptionMode | None = None,
        enable_prefix_caching: bool = False,
        max_model_len: int = 2048,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 2560,
        watermark: float = 0.01,
        seed: int = 0,
    ) -> None:
        num_blocks = num_slots // block_size
        self.num_slots = num_slots
        self.blocks = BlockManager(
            block_size,
            num_blocks,
            num_blocks,
            watermark=watermark,
            enable_prefix_caching=enable_prefix_caching,
        )
        self.scheduler = Scheduler(
            self.blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            scheduling=scheduling,
            preemption_mode=preemption_mode,
        )
        self._rng = np.random.default_rng(seed)
        self._quiet = False
        self._running: list[Sequence] = []
        self._context = 0

    @property
    def busy(self) -> bool:
        return self.scheduler.has_unfinished()

    @property
    def crowded(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.swapped)

    @property
    def accepts(self) -> bool:
        """First come, first served: behind so many that no step could take in more, wait outside.

        (The scheduler sorts its queue at each arrival, which is slow if thousands wait there.)
        """
        return len(self.scheduler.waiting) < self.scheduler.config.max_num_seqs

    def add(self, number: int, request: TraceRequest) -> None:
        params: Any = SimpleNamespace(
            n=request.num_samples,
            best_of=None,
            max_tokens=request.output_len,
            min_tokens=0,
            stop_token_ids=(),
            ignore_eos=True,
            use_beam_search=request.beam_search,
        )
        prompt = self._prompt(number, request)
        group = SequenceGroup(str(number), prompt, params, arrival_time=request.arrival)
        self.scheduler.add_group(group)

    def _prompt(self, number: int, request: TraceRequest) -> list[int]:
        """Tokens that differ from those of other requests, but for the shared prefix."""
        own = [number + 1] * (request.prompt_len - request.prefix_len)
        return [0] * request.prefix_len + own

    def step(self) -> Done:
        output = self.scheduler.schedule()
        assert output.scheduled, "every accepted request finishes, so no step is empty"
        work = self._work(output)
        usage = self._usage([entry.start + entry.num_tokens for entry in output.scheduled])
        before = sum(len(group.unfinished) for group in self.scheduler.running)
        drawn = {entry.seq.seq_id: self._draw(entry) for entry in output.scheduled}
        ended = self.scheduler.update(drawn)
        self._running = [seq for group in self.scheduler.running for seq in group.unfinished]
        self._context = sum(seq.num_computed_tokens for seq in self._running)
        self._quiet = self._is_quiet(output, someone_left=len(self._running) < before)
        return Done(work, [int(group.request_id) for group in ended], usage)

    def _draw(self, entry: ScheduledSequence) -> list[Any]:
        """The model's part: any tokens will do; for a beam, candidates with log-probabilities."""
        if not entry.group.beam_search:
            return entry.seq.token_ids[-1:] * entry.num_samples
        shares = np.arange(1, VOCABULARY + 1) ** -self._rng.uniform(1.0, 3.0)
        logprobs = np.log(shares[: num_candidates(entry.group)] / shares.sum())
        return [(token, float(logprob)) for token, logprob in enumerate(logprobs)]

    def _is_quiet(self, output: SchedulerOutput, someone_left: bool) -> bool:
        """May steps follow in which nothing is decided?"""
        if any(e.num_samples > 1 or e.group.beam_search for e in output.scheduled):
            return False  # samples share a block that they will write to, and beams do all the time
        if any(seq.num_uncomputed_tokens > 1 for seq in self._running):
            return False
        prompts = output.num_batched_tokens > len(output.scheduled)
        changed = prompts or someone_left or output.preempted or output.blocks_to_swap_in
        return not (self.crowded and (changed or self.blocks.enable_prefix_caching))

    def num_alike(self) -> int:
        if not self._quiet or not self._running:
            return 0
        groups = self.scheduler.running
        ends = [(group.params.max_tokens or 0, seq) for group in groups for seq in group.unfinished]
        rest = min(end - seq.output_len for end, seq in ends) - 1
        head_room = max(len(group.unfinished) for group in groups)
        spare = self.blocks.num_free_gpu_blocks - head_room
        least, most = 0, rest
        while least < most:
            middle = most if most == rest else (least + most + 1) // 2
            if self._new_blocks(middle) <= spare:
                least = middle
            else:
                most = middle - 1
        return least

    def peek(self) -> Work:
        count = len(self._running)
        return Work(count, count, self._context + count)

    def skip(self, steps: int) -> Done:
        work, before = self.peek(), self._usage_now()
        manager = self.blocks
        for seq in self._running:
            start = seq.num_computed_tokens
            end = start + steps
            seq.token_ids.extend(seq.token_ids[-1:] * steps)
            grows = manager.num_blocks_for(end) > manager.num_blocks_for(start)
            fills = end // manager.block_size > start // manager.block_size
            if grows or (fills and manager.enable_prefix_caching):
                copies = manager.allocate_slots(seq.seq_id, seq.token_ids, start, end)
                assert copies == [], "steps were skipped that are not all alike"
            seq.num_computed_tokens = end
        self._context += steps * len(self._running)
        return Done(work, [], before.mean_until(self._usage_now(), steps))

    def _usage_now(self) -> Usage:
        return self._usage([seq.num_computed_tokens for seq in self._running])

    def _usage(self, lengths: list[int]) -> Usage:
        """With sequences so long. The unfilled rest of blocks is `internal`."""
        size = self.blocks.block_size
        logical = sum(-(-length // size) for length in lengths)
        physical = self.blocks.num_gpu_blocks - self.blocks.num_free_gpu_blocks
        empty = logical * size - sum(lengths)
        return Usage(
            stored=physical * size - empty,
            internal=empty,
            other=self.num_slots - physical * size,
            requests=len(self.scheduler.running),
            logical=logical,
            physical=physical,
        )

    def _new_blocks(self, steps: int) -> int:
        """Blocks that the running sequences take in so many steps."""
        size = self.blocks.block_size
        computed = [seq.num_computed_tokens for seq in self._running]
        return sum(-(-(n + steps) // size) - -(-n // size) for n in computed)

    def _work(self, output: SchedulerOutput) -> Work:
        size = self.blocks.block_size
        tokens = output.num_batched_tokens
        context = sum(e.start + int(e.num_tokens == 1) for e in output.scheduled)
        moved = size * (len(output.blocks_to_swap_in) + len(output.blocks_to_swap_out))
        return Work(tokens, len(output.scheduled), context, moved)
