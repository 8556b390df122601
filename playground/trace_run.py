"""A scenario in motion: the real scheduler and block manager, and words for a model.

The "model" writes, in place of the key of a token, its word. So what a block holds can be read off
its memory, and if a copy or a swap went wrong, the wrong words would stand there.
"""

import math
from collections.abc import Sequence as SequenceOf
from types import SimpleNamespace
from typing import Any

from playground.trace_memory import WordMemory
from playground.trace_scenarios import Scenario, TracedRequest
from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.scheduler_state import ScheduledSequence
from reference.sequence import Sequence, SequenceGroup
from reference.speculation import ask_for_drafts

LIMITS = {"max_num_seqs": 8, "max_num_batched_tokens": 32, "max_model_len": 32}
MOST = 8
STOP = "."


class Run:
    """What a step needs: `arrivals`, `guess`, the scheduler's plan, then `write` and `draw`."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        block_manager: type[BlockManager] = BlockManager,
        scheduler: type[Scheduler] = Scheduler,
        memory: type[WordMemory] = WordMemory,
    ) -> None:
        self.scenario = scenario
        self.requests = {request.name: request for request in scenario.requests}
        self.groups: dict[str, SequenceGroup] = {}
        """All that have arrived, finished ones included."""
        self.seq_ids: dict[str, list[int]] = {}
        """All that each group has had, in order of appearance: a name is a place in here."""
        self.guesses: dict[int, list[int]] = {}
        """By seq_id: what was guessed for the step."""
        self.words = [STOP]
        self.blocks = block_manager(
            scenario.block_size,
            scenario.num_gpu_blocks,
            scenario.num_cpu_blocks,
            watermark=scenario.watermark,
            enable_prefix_caching=scenario.enable_prefix_caching,
            free_order=scenario.free_order,
        )
        self.memory = memory(
            num_blocks=scenario.num_gpu_blocks,
            block_size=scenario.block_size,
            num_cpu_blocks=scenario.num_cpu_blocks,
        )
        self.scheduler = scheduler(self.blocks, **(LIMITS | dict(scenario.settings)))

    def token_ids(self, text: str) -> list[int]:
        """A token a word; words are numbered as they turn up."""
        for word in text.split():
            if word not in self.words:
                self.words.append(word)
        return [self.words.index(word) for word in text.split()]

    def arrivals(self, step: int) -> list[SequenceGroup]:
        """Queue the requests that arrive before this step."""
        arrived = [request for request in self.scenario.requests if request.step == step]
        return [self._add(request) for request in arrived]

    def all_have_come(self, step: int) -> bool:
        """Whether no request arrives after this step."""
        return all(request.step <= step for request in self.scenario.requests)

    def guess(self) -> None:
        """Before the plan of a step, as in `ReferenceEngine.step`."""
        self.guesses = {}
        if self.scenario.guessing is not None:
            ask_for_drafts(self.scenario.guessing.drafts, self.scheduler.running)
            for group in self.scheduler.running:
                self.guesses |= {seq.seq_id: seq.drafts for seq in group.unfinished if seq.drafts}

    def write(self, scheduled: SequenceOf[ScheduledSequence]) -> None:
        """What the model does to memory: each new token is written to its slot."""
        for entry in scheduled:
            table = self.blocks.block_table(entry.seq.seq_id)
            for position, token_id in enumerate(entry.token_ids, entry.start):
                logical, offset = divmod(position, self.blocks.block_size)
                self.memory.write(table[logical], offset, self.words[token_id])

    def draw(self, entry: ScheduledSequence) -> list[Any]:
        """The next tokens of these samples; of a beam, all that may follow, (token, log-prob).

        With drafts, the tokens behind the last one and behind each draft, as a device draws them.
        """
        request = self.requests[entry.group.request_id]
        if entry.group.beam_search:
            last = self.words[entry.seq.token_ids[-1]]
            return [(self.token_ids(w)[0], math.log(p)) for w, p in request.ways[last].items()]
        seq, output = entry.seq, entry.seq.output_token_ids
        if entry.drafts:
            drafts = [entry.drafts[:i] for i in range(1 + entry.num_drafts)]
            return [self._next(request, seq.index, [*output, *before]) for before in drafts]
        samples = range(seq.index, seq.index + entry.num_samples)
        return [self._next(request, sample, output) for sample in samples]

    def _next(self, request: TracedRequest, sample: int, output: list[int]) -> int:
        """The next word of its text. Behind other words, as of a wrong guess, any known word."""
        text = self.token_ids(request.outputs[sample])
        if len(output) < len(text) and output == text[: len(output)]:
            return text[len(output)]
        return (5 * sum(output) + 3 * len(output)) % len(self.words)

    def sequences(self, group: SequenceGroup) -> list[Sequence]:
        """Its sequences; of a beam search also the outputs that have ended so far."""
        return list(dict.fromkeys([*group.seqs, *group.hypotheses]))

    def name(self, group: SequenceGroup, seq: Sequence) -> str:
        """ "A", or of several samples "A1", "A2". A beam is known by its id, not by its rank."""
        if group.num_samples == 1:
            return group.request_id
        if seq in group.hypotheses:
            return f"{group.request_id}#{group.hypotheses.index(seq) + 1}"
        known = self.seq_ids.setdefault(group.request_id, [])
        if seq.seq_id not in known:
            known.append(seq.seq_id)
        return f"{group.request_id}{known.index(seq.seq_id) + 1}"

    def text(self, token_ids: SequenceOf[int]) -> str:
        return " ".join(self.words[token] for token in token_ids)

    def _add(self, request: TracedRequest) -> SequenceGroup:
        params: Any = SimpleNamespace(
            n=request.beams or len(request.outputs),
            best_of=None,
            max_tokens=max([len(output.split()) for output in request.outputs], default=MOST),
            use_beam_search=request.beams > 0,
            early_stopping=True,
            min_tokens=0,
            stop_token_ids=[self.words.index(STOP)],
            ignore_eos=True,
        )
        prompt = self.token_ids(request.prompt)
        group = SequenceGroup(request.name, prompt, params, adapter=request.adapter)
        self.scheduler.add_group(group)
        self.groups[request.name] = group
        return group
