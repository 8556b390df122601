"""A step's plan: one packed int32 array that the host sends and the compiled step takes apart.

One array a step, because each host-to-device transfer has a fixed cost; floats travel as their
bits. Positions and slots are computed on the device from the lengths and the block tables.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jax_engine.core.output import ScheduledSequence
from jax_engine.sampling.inputs import ROW_WIDTH, SamplingInputs, unpack_sampling
from jax_engine.worker.request_sampling import RequestSampling, sparse_entries
from jax_engine.worker.step_shape import StepShape, step_shape


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepPlan:
    """A ragged batch of T tokens in S sequences, R of which get a new token; -1 is padding.

    Attributes:
        slot_mapping: Where each token's K and V go; -1 for padding.
        context_lens: Length of each sequence, this step's tokens included.
        logits_index: For each sampled token, the token whose hidden state it is drawn from.
        num_samples: How many tokens are sampled; the rows after them are padding.
        targets: For each of the T tokens the one after it in its prompt, or -1 where nobody wants
            its log-probability; empty in a step without `prompt_logprobs`.
    """

    token_ids: Int[Array, "T"]
    positions: Int[Array, "T"]
    slot_mapping: Int[Array, "T"]
    query_start_loc: Int[Array, "S1"]
    context_lens: Int[Array, "S"]
    block_tables: Int[Array, "S W"]
    logits_index: Int[Array, "R"]
    num_samples: Int[Array, ""]
    targets: Int[Array, "targets"]
    sampling: SamplingInputs


def _sections(shape: StepShape, table_width: int) -> list[tuple[int, ...]]:
    """The packed array's parts in order: what `pack_step` fills and `unpack_step` reads."""
    rows = shape.num_rows
    return [
        (shape.num_tokens,),
        (rows + 1,),
        (rows,),
        (rows, table_width),
        (rows,),
        (rows,),
        (rows, ROW_WIDTH),
        (3, shape.num_bias),
        (3, shape.num_history),
        (shape.num_tokens if shape.prompt_logprobs else 0,),
    ]


def packed_length(shape: StepShape, table_width: int) -> int:
    return sum(int(np.prod(section)) for section in _sections(shape, table_width))


def pack_step(
    scheduled: list[ScheduledSequence],
    table_rows: Iterable[np.ndarray],
    sampling: dict[str, RequestSampling],
    table_width: int,
) -> tuple[StepShape, np.ndarray]:
    """The plan of a step on the host.

    Args:
        scheduled: The scheduler's order is the order in the ragged batch.
        table_rows: For each of them its block table as an int32 row of length W.
        sampling: By request id.
    """
    num_tokens = [item.num_tokens for item in scheduled]
    everyone = [sampling[item.group.request_id] for item in scheduled]
    samplers = [(i, item) for i, item in enumerate(scheduled) if item.num_samples]
    num_samples = [item.num_samples for _, item in samplers]
    states = [everyone[i] for i, _ in samplers]
    bias, history = sparse_entries([item for _, item in samplers], states)
    total = sum(num_tokens)
    shape = step_shape(total, len(scheduled), sum(num_samples), bias.shape[1], history.shape[1])
    shape = _with_extras(shape, scheduled, everyone, states)
    packed = np.zeros(packed_length(shape, table_width), np.int32)
    views = _split(packed, shape, table_width)
    tokens, starts, lens, tables, seq_of_sample, positions, rows, *sparse, targets = views

    count = len(scheduled)
    tokens[:total] = _token_ids(scheduled, total)
    starts[1 : count + 1] = np.cumsum(num_tokens)
    starts[count + 1 :] = total
    lens[:count] = [item.start + item.num_tokens for item in scheduled]
    np.concatenate(list(table_rows), out=tables.reshape(-1)[: count * table_width])
    _pack_samples(samplers, num_samples, states, seq_of_sample, positions, rows)
    _pack_sparse(bias, sparse[0], shape.num_rows)
    _pack_sparse(history, sparse[1], shape.num_rows)
    if shape.prompt_logprobs:
        targets[:] = -1
        targets[:total] = _targets(scheduled, everyone)
    return shape, packed


def _with_extras(
    shape: StepShape,
    scheduled: list[ScheduledSequence],
    everyone: list[RequestSampling],
    samplers: list[RequestSampling],
) -> StepShape:
    """The same step with what only some requests ask for, and most steps have none of."""
    special = [
        (item, state) for item, state in zip(scheduled, everyone, strict=True) if state.special
    ]
    if not special:
        return shape
    asked = [item.start + 1 < item.group.prompt_len for item, s in special if s.prompt_logprobs]
    return replace(
        shape,
        split=any(state.constraints is not None or state.needs_logits for state in samplers),
        prompt_logprobs=any(asked),
        whole_prompt_logprobs=any(asked) and any(s.whole_prompt_logprobs for _, s in special),
        pooling=any(state.pooling for _, state in special),
    )


def _targets(scheduled: list[ScheduledSequence], states: list[RequestSampling]) -> list[int]:
    targets: list[int] = []
    for item, state in zip(scheduled, states, strict=True):
        end = item.start + item.num_tokens
        wanted: list[int] = []
        if state.prompt_logprobs:
            wanted = item.seq.token_ids[item.start + 1 : min(end + 1, item.group.prompt_len)]
        targets += wanted + [-1] * (item.num_tokens - len(wanted))
    return targets


def _split(packed: np.ndarray, shape: StepShape, table_width: int) -> list[np.ndarray]:
    sections = _sections(shape, table_width)
    ends = np.cumsum([int(np.prod(section)) for section in sections])
    parts = np.split(packed, ends[:-1])
    return [part.reshape(section) for part, section in zip(parts, sections, strict=True)]


def _token_ids(scheduled: list[ScheduledSequence], total: int) -> list[int]:
    """The step's tokens; a pending one, always the last of its sequence, by its negative code."""
    if total == len(scheduled):
        return [item.seq.pending or item.seq.token_ids[item.start] for item in scheduled]
    tokens: list[int] = []
    for item in scheduled:
        tokens += item.seq.token_ids[item.start : item.start + item.num_tokens]
        if item.seq.pending:
            tokens.append(item.seq.pending)
    return tokens


def _pack_samples(
    samplers: list[tuple[int, ScheduledSequence]],
    num_samples: list[int],
    states: list[RequestSampling],
    seq_of_sample: np.ndarray,
    positions: np.ndarray,
    rows: np.ndarray,
) -> None:
    """A prompt that forks into n samples takes n rows of one sequence's logits."""
    count = sum(num_samples)
    if not count:
        return
    seq_of_sample[:count] = np.repeat([i for i, _ in samplers], num_samples)
    lengths = [item.start + item.num_tokens for _, item in samplers]
    positions[:count] = np.repeat(lengths, num_samples)
    words: list[np.ndarray] = []
    for (_, item), state in zip(samplers, states, strict=True):
        first = item.seq.index
        words += state.rows[first : first + item.num_samples]
    np.concatenate(words, out=rows[:count])


def _pack_sparse(entries: np.ndarray, out: np.ndarray, padding_row: int) -> None:
    out[:, : entries.shape[1]] = entries
    out[0, entries.shape[1] :] = padding_row


def unpack_step(
    packed: Int[Array, "P"],
    previous: Int[Array, "M"],
    shape: StepShape,
    table_width: int,
    block_size: int,
) -> StepPlan:
    """The same plan on the device, with positions, slots and pending tokens worked out.

    Args:
        previous: What the step before sampled, for the tokens that the host did not know yet.
    """
    parts, at = [], 0
    for section in _sections(shape, table_width):
        size = int(np.prod(section))
        parts.append(packed[at : at + size].reshape(section))
        at += size
    tokens, starts, lens, tables, seq_of_sample, sample_positions, rows, *sparse, targets = parts
    bias, history = sparse
    positions, slots = _positions_and_slots(shape, starts, lens, tables, block_size)
    history = history.at[1].set(_fill_pending(history[1], previous))
    return StepPlan(
        token_ids=_fill_pending(tokens, previous),
        positions=positions,
        slot_mapping=slots,
        query_start_loc=starts,
        context_lens=lens,
        block_tables=tables,
        logits_index=jnp.maximum(starts[seq_of_sample + 1] - 1, 0),
        num_samples=(sample_positions > 0).sum(dtype=jnp.int32),
        targets=targets,
        sampling=unpack_sampling(rows, sample_positions, bias, history),
    )


def _fill_pending(tokens: Int[Array, " X"], previous: Int[Array, " M"]) -> Int[Array, " X"]:
    """Token -(r + 1) is the one in row r of the step before (see `Sequence.pending`)."""
    return jnp.where(tokens < 0, previous[jnp.maximum(-1 - tokens, 0)], tokens)


def _positions_and_slots(
    shape: StepShape,
    starts: Int[Array, "S1"],
    lens: Int[Array, "S"],
    tables: Int[Array, "S W"],
    block_size: int,
) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """Position p of a sequence goes to slot table[p // B] * B + p % B (paper, section 4.2)."""
    token = jnp.arange(shape.num_tokens, dtype=jnp.int32)
    real = token < starts[-1]
    if shape.decode_only:
        seq = token
    else:
        seq = jnp.searchsorted(starts, token, side="right", method="compare_all") - 1
        seq = jnp.minimum(seq, shape.num_rows - 1).astype(jnp.int32)
    position = lens[seq] - starts[seq + 1] + token
    position = jnp.where(real, position, 0)
    block = tables[seq, position // block_size]
    return position, jnp.where(real, block * block_size + position % block_size, -1)
