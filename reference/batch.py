"""The ragged batch: what a step hands to the model (paper 4.1, 4.3).

The new tokens of all scheduled sequences are laid end to end. To the model a whole prompt, a chunk
of one, a single decoded token and one with drafts behind it are the same thing: a few new tokens at
the end of a context.

>>> from types import SimpleNamespace
>>> blocks = BlockManager(4, 8)
>>> entries = []
>>> for seq_id, start, token_ids in ((0, 0, [5, 6, 7]), (1, 4, [1, 2, 3, 4, 9])):
...     _ = blocks.allocate_slots(seq_id, token_ids, 0, len(token_ids))
...     seq = SimpleNamespace(seq_id=seq_id, token_ids=token_ids)
...     entries.append(ScheduledSequence(seq, None, start, len(token_ids) - start, 1))
>>> batch = lay_out(entries, blocks)
>>> batch.token_ids.tolist(), batch.positions.tolist(), batch.query_start_loc.tolist()
([5, 6, 7, 9], [0, 1, 2, 4], [0, 3, 4])
>>> batch.block_tables.tolist(), batch.context_lens.tolist(), batch.slot_mapping.tolist()
([[7, 0], [6, 5]], [3, 5], [28, 29, 30, 20])
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from reference.blocks import BlockManager
from reference.kv_cache import slot_of
from reference.scheduler_state import ScheduledSequence


@dataclass(frozen=True)
class RaggedBatch:
    """The new tokens of S sequences, laid end to end; T tokens in all, tables W blocks wide.

    Sequence s owns the tokens query_start_loc[s] .. query_start_loc[s+1]-1, the last ones of its
    context of context_lens[s] tokens. Token t is written to slot slot_mapping[t].
    """

    token_ids: Int[np.ndarray, "T"]
    positions: Int[np.ndarray, "T"]
    block_tables: Int[np.ndarray, "S W"]
    context_lens: Int[np.ndarray, "S"]
    query_start_loc: Int[np.ndarray, "S+1"]
    slot_mapping: Int[np.ndarray, "T"]


def inputs_of(scheduled: Sequence[ScheduledSequence]) -> dict[int, Float[np.ndarray, "E"]]:
    """What the model reads at some of the step's tokens, counted over all, in place of their ids.

    These are the positions of prompts that are given as vectors.

    >>> from types import SimpleNamespace
    >>> vectors = SimpleNamespace(prompt_embeds=np.array([[0.5], [0.25], [0.125]]))
    >>> seq, plain = SimpleNamespace(), SimpleNamespace(prompt_embeds=None)
    >>> rows = [ScheduledSequence(seq, plain, 0, 2, 1), ScheduledSequence(seq, vectors, 2, 3, 1)]
    >>> inputs_of(rows)                                 # two of its three tokens were generated
    {2: array([0.125])}
    """
    inputs: dict[int, Float[np.ndarray, "E"]] = {}
    first = 0
    for entry in scheduled:
        vectors = entry.group.prompt_embeds
        if vectors is not None:
            chunk = vectors[entry.start : entry.start + entry.num_tokens]
            inputs |= enumerate(chunk, first)
        first += entry.num_tokens
    return inputs


def lay_out(scheduled: Sequence[ScheduledSequence], blocks: BlockManager) -> RaggedBatch:
    """The ragged batch of a step. Tables are padded with block 0, which is never looked at."""
    token_ids: list[int] = []
    positions: list[int] = []
    slot_mapping: list[int] = []
    query_start_loc = [0]
    block_tables = [blocks.block_table(entry.seq.seq_id) for entry in scheduled]
    for entry, table in zip(scheduled, block_tables, strict=True):
        for position in range(entry.start, entry.start + entry.num_tokens):
            positions.append(position)
            slot_mapping.append(slot_of(table, position, blocks.block_size))
        token_ids += entry.token_ids
        query_start_loc.append(len(token_ids))
    width = max(len(table) for table in block_tables)
    return RaggedBatch(
        np.array(token_ids),
        np.array(positions),
        np.array([table + [0] * (width - len(table)) for table in block_tables]),
        np.array([entry.start + entry.num_tokens for entry in scheduled]),
        np.array(query_start_loc),
        np.array(slot_mapping),
    )
