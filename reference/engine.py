"""The engine: the loop that ties the chapters together (paper 4, Figure 4).

The scheduler decides, the block manager keeps the books, the KV cache does what they say, and the
model sees a *ragged batch*: the new tokens of all scheduled sequences laid end to end. One step is

    schedule;  swap in, swap out, copy;  write and attend (the model);  sample;  update

and a request goes through as many steps as it takes. Here is a "model" that counts: its hidden
state is the token itself, and its logits want the next one.

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
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Int

from reference.batch import lay_out
from reference.beam_search import num_candidates
from reference.blocks import BlockManager
from reference.kv_cache import KVCache
from reference.random_numbers import derive_seed, request_seed
from reference.sampling import NoTokenLeft, candidates, log_softmax, sample
from reference.scheduler import Scheduler
from reference.scheduler_state import ScheduledSequence
from reference.sequence import RequestParams, SequenceGroup


class Model(Protocol):
    """What the engine asks of a model; `reference.transformer.Transformer` is one."""

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


class ReferenceEngine:
    """Requests in, finished sequence groups out, over the blocks of one KV cache.

    `settings` are those of `reference.scheduler.Scheduler`, `admission_rule=False` among them:
    then requests that can never finish are accepted, to show how an engine without the rule hangs.
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
        **settings: Any,
    ) -> None:
        self.model = model
        self.kv_cache = kv_cache
        self.eos_token_ids = eos_token_ids
        self.seed = seed
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
    ) -> None:
        """Queue a request. Raises AdmissionError, and forgets it, if it could never finish."""
        group = SequenceGroup(
            request_id,
            prompt_token_ids,
            params,
            self.eos_token_ids,
            arrival_time,
            priority,
            cache_salt,
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
        output = self.scheduler.schedule()
        self.kv_cache.begin_step(
            output.blocks_to_swap_in, output.blocks_to_swap_out, output.blocks_to_copy
        )
        if not output.scheduled:
            return []
        batch = lay_out(output.scheduled, self.block_manager)
        hidden = self.model.forward(
            batch.token_ids,
            batch.positions,
            self.kv_cache,
            batch.block_tables,
            batch.context_lens,
            batch.query_start_loc,
            batch.slot_mapping,
        )
        self._note_prompt_logprobs(output.scheduled, hidden)
        last_tokens = batch.query_start_loc[1:] - 1
        sampling = [i for i, entry in enumerate(output.scheduled) if entry.num_samples > 0]
        logits = self.model.compute_logits(hidden[last_tokens[sampling]])
        entries = [output.scheduled[i] for i in sampling]
        sampled, stuck = self._sample_all(entries, logits)
        finished = self.scheduler.update(sampled)
        for entry, row in zip(entries, logits, strict=True):
            if not entry.group.beam_search and entry.group not in stuck:
                _note_logprobs(entry, sampled[entry.seq.seq_id], row)
        return stuck + finished

    def _sample_all(
        self, entries: Sequence[ScheduledSequence], logits: Float[np.ndarray, "R V"]
    ) -> tuple[dict[int, list[Any]], list[SequenceGroup]]:
        """What each sequence draws; and the requests that are aborted, for want of a token."""
        sampled: dict[int, list[Any]] = {}
        stuck: list[SequenceGroup] = []
        for entry, row in zip(entries, logits, strict=True):
            try:
                sampled[entry.seq.seq_id] = self._sample(entry, row)
            except NoTokenLeft as error:
                if self.scheduler.abort(entry.group.request_id, str(error)):
                    stuck.append(entry.group)
        return sampled, stuck

    def _sample(self, entry: ScheduledSequence, logits: Float[np.ndarray, "V"]) -> list[Any]:
        """Tokens for one sequence: several, from the same logits, when its group is to fork.

        Sample i of a request draws from a seed of its own, before the fork and after it. A beam
        draws candidates.
        """
        seq, group = entry.seq, entry.group
        context: dict[str, Any] = {
            "prompt_token_ids": seq.token_ids[: seq.prompt_len],
            "output_token_ids": seq.output_token_ids,
            "eos_token_ids": group.eos_token_ids,
        }
        if group.beam_search:
            return candidates(logits, group.params, num_candidates(group), **context)
        seed = request_seed(group.params.seed, self.seed, group.add_index)
        return [
            sample(logits, group.params, seed=derive_seed(seed, seq.index + i), **context)
            for i in range(entry.num_samples)
        ]

    def _note_prompt_logprobs(
        self, scheduled: Sequence[ScheduledSequence], hidden: Float[np.ndarray, "T E"]
    ) -> None:
        """Where they are wanted: a token of the prompt says how probable the next one was."""
        rows = iter(hidden)
        for entry in scheduled:
            wanted = entry.group.prompt_logprobs
            for position in range(entry.start, entry.start + entry.num_tokens):
                row = next(rows)
                if wanted is not None and position + 1 < entry.group.prompt_len:
                    [logits] = self.model.compute_logits(row[None])
                    wanted[position + 1] = log_softmax(logits)


def _note_logprobs(
    entry: ScheduledSequence, token_ids: Sequence[int], logits: Float[np.ndarray, "V"]
) -> None:
    """Give each sequence that got a token its log-probability. (By now the group has forked.)"""
    logprobs = log_softmax(logits)
    first = entry.seq.index
    seqs = [entry.seq]
    if entry.num_samples > 1:
        seqs = entry.group.seqs[first : first + entry.num_samples]
    for seq, token_id in zip(seqs, token_ids, strict=True):
        seq.logprobs.append(float(logprobs[token_id]))
        if seq.distributions is not None:
            seq.distributions.append(logprobs)
