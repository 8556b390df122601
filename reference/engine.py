"""The engine: the loop that ties the chapters together (paper 4, Figure 4).

The scheduler decides, the block manager keeps the books, the KV cache does what they say, and the
model sees a *ragged batch*: the new tokens of all scheduled sequences laid end to end. One step is

    schedule;  swap in, swap out, copy;  write and attend (the model);  sample;  update

and a request goes through as many steps as it takes. Before each of them a drafter may be asked to
guess what comes (`speculation`). Here is a "model" that counts: its hidden state is the token
itself, and its logits want the next one.

>>> from types import SimpleNamespace
>>> model = SimpleNamespace(
...     forward=lambda token_ids, *rest: token_ids[:, None].astype(float),
...     compute_logits=lambda hidden: -abs(np.arange(10.0) - (hidden + 1)),
... )
>>> cache = KVCache(num_layers=1, num_blocks=8, num_kv_heads=1, block_size=4, head_dim=1)
>>> params = SimpleNamespace(
...     n=1, best_of=None, max_tokens=3, min_tokens=0, stop_token_ids=None, ignore_eos=False,
...     seed=None, temperature=0.0, top_n_sigma=0.0, top_k=0, top_p=1.0, min_p=0.0, logit_bias=None,
...     repetition_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0,
... )
>>> engine = ReferenceEngine(
...     model, cache, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=16
... )
>>> engine.add_request("a", [1, 2], params)
>>> engine.add_request("b", [5], params)
>>> for group in engine.run():
...     print(group.request_id, group.seqs[0].output_token_ids, group.seqs[0].finish_reason)
a [3, 4, 5] length
b [6, 7, 8] length

With a drafter that guesses what this model says, two steps of the three are enough for the same
output. (In the first one there is nothing to guess behind, in the second one place for one draft.)

>>> engine = ReferenceEngine(
...     model, cache, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=16,
...     max_draft_tokens=2, drafter=lambda token_ids: [token_ids[-1] + 1],
... )
>>> engine.add_request("a", [1, 2], params)
>>> engine.step(), [group.seqs[0].output_token_ids for group in engine.step()]
([], [[3, 4, 5]])
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Int

from reference.adapter_slots import Adapter
from reference.batch import inputs_of, lay_out
from reference.beam_search import num_candidates
from reference.blocks import BlockManager
from reference.kv_cache import KVCache
from reference.random_numbers import derive_seed, request_seed
from reference.sampling import NoTokenLeft, candidates, log_softmax, sample
from reference.scheduler import Scheduler
from reference.scheduler_state import ScheduledSequence
from reference.sequence import NO_TOKEN_ID, RequestParams, SequenceGroup, reason_to_end
from reference.speculation import ask_for_drafts


class Model(Protocol):
    """What the engine asks of a model; `reference.transformer.Transformer` is one.

    One whose prompts may be vectors takes `inputs` behind these arguments, too.
    """

    def forward(
        self,
        token_ids: Int[np.ndarray, "T"],
        positions: Int[np.ndarray, "T"],
        kv_cache: KVCache,
        block_tables: Int[np.ndarray, "S W"],
        context_lens: Int[np.ndarray, "S"],
        query_start_loc: Int[np.ndarray, "S+1"],
        slot_mapping: Int[np.ndarray, "T"],
    ) -> Float[np.ndarray, "T E"]: ...

    def compute_logits(self, hidden: Float[np.ndarray, "R E"]) -> Float[np.ndarray, "R V"]: ...


WithLogits = tuple[ScheduledSequence, Float[np.ndarray, "R V"]]
"""Who draws, and from what: 1 + num_drafts rows of logits."""


class ReferenceEngine:
    """Requests in, finished sequence groups out, over the blocks of one KV cache.

    `settings` are those of `reference.scheduler.Scheduler`, `admission_rule=False` among them:
    then requests that can never finish are accepted, to show how an engine without the rule hangs.
    `drafter` is given the tokens of a sequence before a step, and returns guesses for the next
    ones: any number of token ids, all of them in the vocabulary. `adapted` is given an adapter, and
    returns the model with it (see `lora`), for requests that have one.
    """

    def __init__(
        self,
        model: Model,
        kv_cache: KVCache,
        *,
        eos_token_ids: Collection[int] = (),
        seed: int = 0,
        watermark: float = 0.01,
        enable_prefix_caching: bool = False,
        drafter: Callable[[list[int]], Sequence[int]] | None = None,
        adapted: Callable[[Adapter], Model] | None = None,
        **settings: Any,
    ) -> None:
        self.model = model
        self.adapted = adapted
        self.slots: dict[int, Model] = {0: model}
        self.kv_cache = kv_cache
        self.eos_token_ids = eos_token_ids
        self.seed = seed
        self.drafter = drafter
        self.block_manager = BlockManager(
            kv_cache.block_size,
            kv_cache.gpu.shape[2],
            kv_cache.cpu.shape[2],
            watermark=watermark,
            enable_prefix_caching=enable_prefix_caching,
        )
        self.scheduler = Scheduler(self.block_manager, **settings)

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        params: RequestParams,
        *,
        arrival_time: float = 0.0,
        priority: int = 0,
        cache_salt: str | None = None,
        adapter: Adapter | None = None,
        prompt_embeds: Float[np.ndarray, "n E"] | None = None,
    ) -> None:
        """Queue a request. Raises AdmissionError, and forgets it, if it could never finish.

        With `prompt_embeds` the model reads these vectors, and the prompt has no tokens.
        """
        if prompt_embeds is not None:
            prompt_token_ids = [NO_TOKEN_ID] * len(prompt_embeds)
        group = SequenceGroup(
            request_id,
            prompt_token_ids,
            params,
            self.eos_token_ids,
            arrival_time,
            priority,
            cache_salt,
            adapter,
            prompt_embeds,
        )
        self.scheduler.add_group(group)

    def abort_request(self, request_id: str) -> bool:
        """Drop a request, whatever it is doing; False if there is none of this id (any more)."""
        return self.scheduler.abort(request_id)

    def has_unfinished_requests(self) -> bool:
        return self.scheduler.has_unfinished()

    def run(self) -> list[SequenceGroup]:
        """Step until everything has finished; the groups in the order in which they did."""
        finished = []
        while self.has_unfinished_requests():
            finished += self.step()
        return finished

    def step(self) -> list[SequenceGroup]:
        """Schedule, move blocks, run the model, sample, update; the groups that finished."""
        if self.drafter is not None:
            ask_for_drafts(self.drafter, self.scheduler.running)
        output = self.scheduler.schedule()
        self.kv_cache.begin_step(
            output.blocks_to_swap_in, output.blocks_to_swap_out, output.blocks_to_copy
        )
        for slot, adapter in output.adapters:
            assert self.adapted is not None, "nobody said what a model is with an adapter"
            self.slots[slot] = self.adapted(adapter)
        if not output.scheduled:
            return []
        hidden = self._forward(output.scheduled)
        self._note_prompt_logprobs(output.scheduled, hidden)
        with_logits = self._with_logits(output.scheduled, hidden)
        sampled, stuck = self._sample_all(with_logits)
        finished = self.scheduler.update(sampled)
        for entry, logits in with_logits:
            if not entry.group.beam_search:
                _note_logprobs(entry, logits)
        return stuck + finished

    def _forward(self, scheduled: Sequence[ScheduledSequence]) -> list[Float[np.ndarray, "_ E"]]:
        """The hidden states of each entry's tokens: the model of each slot computes its own.

        What entries read of each other in a step has been written with the same adapter.
        """
        hidden: dict[int, Float[np.ndarray, "_ E"]] = {}
        for slot, places in _by_slot(scheduled):
            entries = [scheduled[place] for place in places]
            batch, inputs = lay_out(entries, self.block_manager), inputs_of(entries)
            rows = self.slots[slot].forward(
                batch.token_ids,
                batch.positions,
                self.kv_cache,
                batch.block_tables,
                batch.context_lens,
                batch.query_start_loc,
                batch.slot_mapping,
                *([inputs] if inputs else []),
            )
            parts = np.split(rows, batch.query_start_loc[1:-1])
            hidden |= zip(places, parts, strict=True)
        return [hidden[place] for place in range(len(scheduled))]

    def _with_logits(
        self,
        scheduled: Sequence[ScheduledSequence],
        hidden: Sequence[Float[np.ndarray, "_ E"]],
    ) -> list[WithLogits]:
        """Who draws, and the logits behind its last known token and behind each of its drafts."""
        pairs = zip(scheduled, hidden, strict=True)
        drawing = [(entry, rows) for entry, rows in pairs if entry.num_samples > 0]
        logits: dict[int, Float[np.ndarray, "R V"]] = {}
        for slot, places in _by_slot([entry for entry, _ in drawing]):
            counts = [1 + drawing[place][0].num_drafts for place in places]
            last = [drawing[place][1][-count:] for place, count in zip(places, counts, strict=True)]
            rows = self.slots[slot].compute_logits(np.concatenate(last))
            parts = np.split(rows, np.cumsum(counts)[:-1])
            logits |= zip(places, parts, strict=True)
        return [(entry, logits[place]) for place, (entry, _) in enumerate(drawing)]

    def _sample_all(
        self, with_logits: Sequence[WithLogits]
    ) -> tuple[dict[int, list[Any]], list[SequenceGroup]]:
        """What each sequence draws; and the requests that are aborted, for want of a token."""
        sampled: dict[int, list[Any]] = {}
        stuck: list[SequenceGroup] = []
        for entry, logits in with_logits:
            try:
                sampled[entry.seq.seq_id] = self._sample(entry, logits)
            except NoTokenLeft as error:
                if self.scheduler.abort(entry.group.request_id, str(error)):
                    stuck.append(entry.group)
        return sampled, stuck

    def _sample(self, entry: ScheduledSequence, logits: Float[np.ndarray, "R V"]) -> list[Any]:
        """Tokens for one sequence: several, from the same logits, when its group is to fork.

        Sample i of a request draws from a seed of its own, before the fork and after it. A beam
        draws candidates.
        """
        seq, group = entry.seq, entry.group
        context: dict[str, Any] = {
            "prompt_token_ids": seq.token_ids[: seq.prompt_len],
            "eos_token_ids": group.eos_token_ids,
        }
        output = seq.output_token_ids
        if group.beam_search:
            count = num_candidates(group)
            return candidates(logits[0], group.params, count, output_token_ids=output, **context)
        seed = request_seed(group.params.seed, self.seed, group.add_index)

        def draw(row: Float[np.ndarray, "V"], output: list[int], i: int = 0) -> int:
            seed_of_sample = derive_seed(seed, seq.index + i)
            return sample(
                row, group.params, seed=seed_of_sample, output_token_ids=output, **context
            )

        if entry.num_drafts > 0:
            return self._draw_along(entry, logits, draw)
        return [draw(logits[0], output, i) for i in range(entry.num_samples)]

    def _draw_along(
        self,
        entry: ScheduledSequence,
        logits: Float[np.ndarray, "R V"],
        draw: Callable[[Float[np.ndarray, "V"], list[int]], int],
    ) -> list[int]:
        """Draw behind the known token, and behind drafts as long as they are what was drawn.

        So nothing is drawn, and no processor or guide of the request asked, where it would not be
        without drafts: behind a wrong one, or behind the end. Raises NoTokenLeft if the first draw
        does; where a later one does, the next step will find out.
        """
        seq, group = entry.seq, entry.group
        max_model_len = self.scheduler.config.max_model_len
        drawn: list[int] = []
        ended = False
        while not ended and drawn == list(entry.drafts[: len(drawn)]):
            try:
                drawn.append(draw(logits[len(drawn)], [*seq.output_token_ids, *drawn]))
            except NoTokenLeft:
                if not drawn:
                    raise
                break
            output_len = seq.output_len + len(drawn)
            ended = reason_to_end(drawn[-1], output_len, group, max_model_len) is not None
        return drawn

    def _note_prompt_logprobs(
        self,
        scheduled: Sequence[ScheduledSequence],
        hidden: Sequence[Float[np.ndarray, "_ E"]],
    ) -> None:
        """Where they are wanted: a token of the prompt says how probable the next one was."""
        for entry, rows in zip(scheduled, hidden, strict=True):
            wanted = entry.group.prompt_logprobs
            for position, row in enumerate(rows, entry.start):
                if wanted is not None and position + 1 < entry.group.prompt_len:
                    [logits] = self.slots[entry.group.adapter_slot].compute_logits(row[None])
                    wanted[position + 1] = log_softmax(logits)


def _by_slot(scheduled: Sequence[ScheduledSequence]) -> list[tuple[int, list[int]]]:
    """Each slot that is used, and the places of its entries."""
    slots = [entry.group.adapter_slot for entry in scheduled]
    return [
        (slot, [place for place, one in enumerate(slots) if one == slot])
        for slot in sorted(set(slots))
    ]


def _note_logprobs(entry: ScheduledSequence, logits: Float[np.ndarray, "R V"]) -> None:
    """Give each sequence that got tokens their log-probabilities. (By now the group has forked.)"""
    first = entry.seq.index
    seqs = [entry.seq]
    if entry.num_samples > 1:
        seqs = entry.group.seqs[first : first + entry.num_samples]
    for seq in seqs:
        new_tokens = seq.output_token_ids[len(seq.logprobs) :]
        for token_id, row in zip(new_tokens, logits, strict=False):
            logprobs = log_softmax(row)
            seq.logprobs.append(float(logprobs[token_id]))
            if seq.distributions is not None:
                seq.distributions.append(logprobs)
