"""A step's plan: one packed int32 array that the host sends and the compiled step unpacks.

A step sends one array, because each host-to-device transfer has a fixed cost. Floats are sent as
their bits. Positions and slots are computed on the device from the lengths and the block tables.
Biases, forbidden tokens, and tokens with penalties are sent as sparse edits of the logits.

A step may build on steps whose results the host has not read: on their tokens, and on how many
guesses were right. The device adds these to the packed array by small programs, so the step's own
program is the same either way.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32

from jax_engine.operations import decodes_are_ragged, this_device
from jax_engine.sampling.sampling_inputs import ROW_WIDTH, PackedSampling
from jax_engine.step import RequestSetup, Row, Step, Unread
from jax_engine.worker.step_output import NUM_TOP
from jax_engine.worker.step_shape import StepShape, bucket, step_shape, with_adapters

_NONE = np.zeros((3, 0), np.int32)


def sparse_entries(
    rows: list[Row],
    of_samples: list[RequestSetup],
    row_of_sample: Int[np.ndarray, " samples"],
    position_of_sample: Int[np.ndarray, " samples"],
) -> tuple[Int32[np.ndarray, "3 NB"], Int32[np.ndarray, "3 NH"]]:
    """Bias entries (sample, token, bits) and history entries (sample, token, is_output) of a step.

    Args:
        of_samples: Each sample's request.
        position_of_sample: How many tokens of its sequence it follows.
    """
    bias: list[np.ndarray] = []
    history: list[np.ndarray] = []
    known: dict[int, np.ndarray] = {}
    places = zip(row_of_sample.tolist(), position_of_sample.tolist(), strict=True)
    for i, ((row, position), setup) in enumerate(zip(places, of_samples, strict=True)):
        prompt_len = len(setup.prompt_token_ids)
        num_output = max(position - prompt_len, 0)
        if setup.bias.size:
            bias.append(_of_sample(i, setup.bias))
        if num_output < setup.min_tokens:
            bias.append(_of_sample(i, setup.forbidden))
        if setup.has_penalties:
            if row not in known:
                known[row] = _history(rows[row], prompt_len)
            first = 0 if setup.embeds is None else prompt_len  # embeddings are no tokens
            history.append(_of_sample(i, known[row][:, first:position]))
    return (
        np.concatenate(bias, axis=1) if bias else _NONE,
        np.concatenate(history, axis=1) if history else _NONE,
    )


def _history(row: Row, prompt_len: int) -> np.ndarray:
    assert row.history is not None
    tokens = np.array(row.history, np.int32)
    return np.stack([tokens, (np.arange(len(tokens)) >= prompt_len).astype(np.int32)])


def _of_sample(sample: int, entries: np.ndarray) -> np.ndarray:
    return np.concatenate([np.full((1, entries.shape[1]), sample, np.int32), entries])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepPlan:
    """A ragged batch of T tokens in S sequences, and R tokens to draw behind any of them.

    Attributes:
        slot_mapping: Where each token's K and V go; -1 for padding.
        context_lens: Length of each sequence, this step's tokens included.
        prompt_lens: Length of each sequence's prompt.
        adapters: The slot of each sequence's adapter; 0 for none.
        logits_index: For each sampled token, the token whose hidden state it is drawn from.
        num_samples: How many tokens are sampled; the rows after them are padding.
        targets: Each token's successor in its prompt, or -1 if its log-probability is not
            requested; empty in a step without `prompt_logprobs`.
    """

    token_ids: Int[Array, "T"]
    positions: Int[Array, "T"]
    slot_mapping: Int[Array, "T"]
    query_start_loc: Int[Array, "S1"]
    context_lens: Int[Array, "S"]
    prompt_lens: Int[Array, "S"]
    adapters: Int[Array, "S"]
    block_tables: Int[Array, "S W"]
    logits_index: Int[Array, "R"]
    num_samples: Int[Array, ""]
    targets: Int[Array, "targets"]
    sampling: PackedSampling


class PackedField(NamedTuple):
    """Where a field lies in the packed array, and its shape there; all are int32."""

    start: int
    end: int
    shape: tuple[int, ...]


@cache
def packed_fields(shape: StepShape, table_width: int) -> dict[str, PackedField]:
    """The fields of the packed array in order: `pack_step` fills them, `unpack_step` reads them."""
    rows, tokens = shape.num_rows, shape.num_tokens
    sizes: dict[str, tuple[int, ...]] = {
        "token_ids": (tokens,),
        "query_start_loc": (rows + 1,),
        "context_lens": (rows,),
        "prompt_lens": (rows,),
        "adapters": (rows,),
        "block_tables": (rows, table_width),
        "token_of_sample": (rows,),
        "position_of_sample": (rows,),
        "sampling": (rows, ROW_WIDTH),
        "bias": (3, shape.num_bias),  # row, token, bits of the value
        "history": (3, shape.num_history),  # row, token, whether it is output
        "targets": (tokens if shape.prompt_logprobs else 0,),
    }
    ends = list(accumulate([math.prod(size) for size in sizes.values()], initial=0))
    places = zip(ends, ends[1:], sizes.values(), strict=False)
    return {name: PackedField(*place) for name, place in zip(sizes, places, strict=True)}


def packed_length(shape: StepShape, table_width: int) -> int:
    return max(field.end for field in packed_fields(shape, table_width).values())


def split_fields(packed: Any, shape: StepShape, table_width: int) -> dict[str, Any]:
    """The fields of a packed array by name. For a NumPy array they are views."""
    fields = packed_fields(shape, table_width)
    return {name: packed[one.start : one.end].reshape(one.shape) for name, one in fields.items()}


def pack_step(
    step: Step,
    setups: Mapping[int, RequestSetup],
    table_width: int,
    *,
    batch_invariant: bool = False,
) -> tuple[StepShape, np.ndarray]:
    """Packs a step on the host.

    Args:
        setups: The requests' setups by request number.
        batch_invariant: As in `make_batch`: a prompt's rest of one token is no decode.
    """
    rows, block_tables = step.rows, step.block_tables
    num_draft = sum([row.num_draft for row in rows])
    if num_draft and not decodes_are_ragged(batch_invariant=batch_invariant):
        rows, block_tables = _rows_of_one_query(step)
    of_rows = [setups[row.request] for row in rows]
    num_tokens = np.array([len(row.tokens) for row in rows])
    borders = np.cumsum(num_tokens)
    ends = num_tokens + [row.start for row in rows]
    token_of_sample = np.array(step.samples.tokens, np.int32)
    row_of_sample = np.searchsorted(borders, token_of_sample, side="right")
    position_of_sample = (ends - borders)[row_of_sample] + token_of_sample + 1
    of_samples = [of_rows[row] for row in row_of_sample.tolist()]
    bias = history = _NONE
    if any([setup.edits_logits for setup in of_samples]):
        bias, history = sparse_entries(rows, of_samples, row_of_sample, position_of_sample)
    total, count, num_samples = int(borders[-1]), len(rows), len(of_samples)
    # Guesses count as rows of their own: a step without prompts only decodes.
    sizes = total, len(step.rows) + num_draft, num_samples, bias.shape[1], history.shape[1]
    shape = step_shape(*sizes, prompts=batch_invariant and _has_prompts(rows, of_rows))
    if step.masked or any([setup.is_special for setup in of_rows]):
        shape = _with_extras(shape, step, rows, of_rows, of_samples)
    if any([row.adapter for row in rows]) and this_device().branches_wait:
        shape = with_adapters(shape)
    packed = np.zeros(packed_length(shape, table_width), np.int32)
    fields = split_fields(packed, shape, table_width)
    fields["token_ids"][:total] = list(chain.from_iterable([row.tokens for row in rows]))
    query_start_loc = fields["query_start_loc"]
    query_start_loc[1 : count + 1] = borders
    query_start_loc[count + 1 :] = total
    fields["context_lens"][:count] = ends
    fields["prompt_lens"][:count] = [len(setup.prompt_token_ids) for setup in of_rows]
    fields["adapters"][:count] = [row.adapter for row in rows]
    fields["block_tables"][:count] = block_tables
    fields["token_of_sample"][:num_samples] = token_of_sample
    fields["position_of_sample"][:num_samples] = position_of_sample
    if num_samples:
        words = _sampling_rows(step.samples.indices, of_samples)
        np.concatenate(words, out=fields["sampling"][:num_samples])
    if shape.num_bias:  # then there is room for both kinds
        _pack_sparse(bias, fields["bias"], shape.num_rows)
        _pack_sparse(history, fields["history"], shape.num_rows)
    if shape.prompt_logprobs:
        fields["targets"][:] = -1
        fields["targets"][:total] = _targets(rows, of_rows)
    return shape, packed


def has_one_query_each(shape: StepShape, *, batch_invariant: bool) -> bool:
    """Whether each row of a step of this shape has one query, for certain."""
    return shape.decode_only and not decodes_are_ragged(batch_invariant=batch_invariant)


def _rows_of_one_query(step: Step) -> tuple[list[Row], Int32[np.ndarray, "S W"]]:
    """The rows and their block tables, with a row of its own for each guess.

    Rows of one sequence share its table. All of them write before any of them reads. So a step that
    only decodes is still one, and its program knows nothing of guesses.
    """
    rows, tables = list[Row](), list[int]()
    for table, row in enumerate(step.rows):
        known = len(row.tokens) - row.num_draft
        rows.append(row._replace(tokens=row.tokens[:known], num_draft=0))
        rows += [
            row._replace(start=row.start + i, tokens=[row.tokens[i]], num_draft=0)
            for i in range(known, len(row.tokens))
        ]
        tables += [table] * (1 + row.num_draft)
    return rows, step.block_tables[tables]


def _with_extras(
    shape: StepShape,
    step: Step,
    rows: list[Row],
    of_rows: list[RequestSetup],
    of_samples: list[RequestSetup],
) -> StepShape:
    """Adds the outputs that few requests ask for: most steps have none of them."""
    special = [(row, setup) for row, setup in zip(rows, of_rows, strict=True) if setup.is_special]
    scored = [(row, s) for row, s in special if s.prompt_logprobs is not None]
    asked = any(row.start + 1 < len(s.prompt_token_ids) for row, s in scored)
    counts = [s.prompt_logprobs or 0 for _, s in scored]
    return replace(
        shape,
        split=step.masked or any(setup.needs_logits for setup in of_samples),
        prompt_logprobs=asked,
        whole_prompt_logprobs=asked and not all(0 <= count <= NUM_TOP for count in counts),
        pooling=any(setup.pooling for _, setup in special),
        embeds=any(
            setup.embeds is not None and row.start < len(setup.embeds) for row, setup in special
        ),
    )


class PromptEmbeds(NamedTuple):
    """What the first layer reads of some tokens of a step, in place of their table's vectors.

    Attributes:
        given: Which tokens these are; the others' vectors are zeros.
    """

    vectors: Float[Array, "T E"] | Float[np.ndarray, "T E"]
    given: Bool[Array, " T"] | Bool[np.ndarray, " T"]


def prompt_embeds(
    rows: list[Row], setups: Mapping[int, RequestSetup], num_tokens: int, width: int, dtype: Any
) -> PromptEmbeds:
    """The embeddings of a step's positions.

    Args:
        num_tokens: T, padded.
        width, dtype: Those of the vectors.
    """
    vectors, given = np.zeros((num_tokens, width), dtype), np.zeros(num_tokens, bool)
    first = 0
    for row in rows:
        embeds = setups[row.request].embeds
        if embeds is not None:
            part = embeds[row.start : row.end]
            vectors[first : first + len(part)] = part
            given[first : first + len(part)] = True
        first += len(row.tokens)
    return PromptEmbeds(vectors, given)


def _has_prompts(rows: list[Row], of_rows: list[RequestSetup]) -> bool:
    return any(
        row.start < len(setup.prompt_token_ids) for row, setup in zip(rows, of_rows, strict=True)
    )


def _targets(rows: list[Row], of_rows: list[RequestSetup]) -> list[int]:
    targets: list[int] = []
    for row, setup in zip(rows, of_rows, strict=True):
        wanted: list[int] = []
        if setup.prompt_logprobs is not None:
            wanted = setup.prompt_token_ids[row.start + 1 : row.end + 1]
        targets += wanted + [-1] * (len(row.tokens) - len(wanted))
    return targets


def _sampling_rows(indices: list[int], of_samples: list[RequestSetup]) -> list[np.ndarray]:
    """The sampling parameters of each sample. Beams share the only ones of their request."""
    return [
        setup.rows if len(setup.rows) == 1 else setup.rows[index : index + 1]
        for index, setup in zip(indices, of_samples, strict=True)
    ]


def _pack_sparse(entries: np.ndarray, out: np.ndarray, padding_row: int) -> None:
    out[:, : entries.shape[1]] = entries
    out[0, entries.shape[1] :] = padding_row


def unpack_step(
    packed: Int[Array, "P"],
    previous: Int[Array, "M"],
    shape: StepShape,
    table_width: int,
    block_size: int,
    *,
    batch_invariant: bool = False,
) -> StepPlan:
    """Unpacks the plan on the device, and computes positions, slots and pending tokens.

    Args:
        previous: The previous step's sampled tokens, for those that the host did not know yet.
        batch_invariant: As in `make_batch`.
    """
    fields = split_fields(packed, shape, table_width)
    query_start_loc, context_lens = fields["query_start_loc"], fields["context_lens"]
    block_tables, history = fields["block_tables"], fields["history"]
    one_each = has_one_query_each(shape, batch_invariant=batch_invariant)
    positions, slot_mapping = _positions_and_slots(
        shape.num_tokens, query_start_loc, context_lens, block_tables, block_size, one_each=one_each
    )
    history = history.at[1].set(_fill_pending(history[1], previous))
    ends = fields["position_of_sample"]
    return StepPlan(
        token_ids=_fill_pending(fields["token_ids"], previous),
        positions=positions,
        slot_mapping=slot_mapping,
        query_start_loc=query_start_loc,
        context_lens=context_lens,
        prompt_lens=fields["prompt_lens"],
        adapters=fields["adapters"],
        block_tables=block_tables,
        logits_index=fields["token_of_sample"],
        num_samples=(ends > 0).sum(dtype=jnp.int32),
        targets=fields["targets"],
        sampling=PackedSampling(fields["sampling"], ends, fields["bias"], history),
    )


def _fill_pending(tokens: Int[Array, " X"], previous: Int[Array, " M"]) -> Int[Array, " X"]:
    """Replaces token -(r + 1) by sample r of the previous step (see `Row.tokens`)."""
    return jnp.where(tokens < 0, previous[jnp.maximum(-1 - tokens, 0)], tokens)


def _positions_and_slots(
    num_tokens: int,
    query_start_loc: Int[Array, "S1"],
    context_lens: Int[Array, "S"],
    block_tables: Int[Array, "S W"],
    block_size: int,
    *,
    one_each: bool,
) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """Position p of a sequence goes to slot table[p // B] * B + p % B (paper, section 4.2).

    Args:
        one_each: Each row has one token.
    """
    token = jnp.arange(num_tokens, dtype=jnp.int32)
    real = token < query_start_loc[-1]
    # Padding is counted to the row behind the last one. What it reads is replaced below.
    seq = token if one_each else _sequence_of(token, query_start_loc)
    position = context_lens[seq] - query_start_loc[seq + 1] + token
    position = jnp.where(real, position, 0)
    block = block_tables[seq, position // block_size]
    return position, jnp.where(real, block * block_size + position % block_size, -1)


def adapters_of_tokens(plan: StepPlan) -> Int[Array, "T"]:
    """The slot of each token's adapter; 0 for none, and for padding."""
    query_start_loc = plan.query_start_loc
    token = jnp.arange(len(plan.token_ids), dtype=jnp.int32)
    slots = plan.adapters[_sequence_of(token, query_start_loc)]
    return jnp.where(token < query_start_loc[-1], slots, 0)


def _sequence_of(token: Int[Array, "T"], query_start_loc: Int[Array, "S1"]) -> Int[Array, "T"]:
    """The sequence of each token; of padding, the one behind the last."""
    found: Array = jnp.searchsorted(query_start_loc, token, side="right", method="compare_all")
    return found - 1


_SIZES = (8,)  # and 16, 32, ..: what lists are padded to, so that there are few programs


def num_right(step: Step, previous: Int[Array, " M"], drawn: Int[Array, " M"]) -> Int[Array, " S"]:
    """How many guesses of each row of a step were right: those before the first wrong one.

    Args:
        previous: What the step was given as the tokens drawn before it.
        drawn: The tokens that it drew.
    """
    counts = [row.num_draft for row in step.rows]
    fed = [token for row in step.rows for token in row.tokens[len(row.tokens) - row.num_draft :]]
    ends = accumulate([len(row.tokens) for row in step.rows])
    known = [end - 1 - count for end, count in zip(ends, counts, strict=True)]
    samples = np.searchsorted(step.samples.tokens, known).tolist()  # behind these tokens
    places = [[*accumulate(counts, initial=0)][:-1], samples, counts]
    padded = _padded(fed, len(fed)), previous, _padded(places, len(counts))
    right: Array = _num_right(*padded, drawn, most=bucket(max([1, *counts]), _SIZES))
    return right


@partial(jax.jit, static_argnames="most")
def _num_right(fed: Any, previous: Any, places: Any, drawn: Any, *, most: int) -> Any:
    fed = jnp.where(fed < 0, previous[jnp.maximum(-1 - fed, 0)], fed)
    first, sample, count = places[:, :, None]
    i = jnp.arange(most)
    right = (fed[first + i] == drawn[sample + i]) & (i < count)
    return jnp.cumprod(right, axis=1).sum(axis=1, dtype=jnp.int32)


def own_numbers(step: Step) -> tuple[Step, list[int]]:
    """Counts the samples that a step is fed by themselves: there may be more that it is not fed.

    Returns:
        The step, in which token -(i + 1) is the i-th of the other list: samples, as `Unread` counts
        them.
    """
    numbers: dict[int, int] = {}

    def renamed(tokens: list[int]) -> list[int]:
        return [
            token if token >= 0 else -1 - numbers.setdefault(-1 - token, len(numbers))
            for token in tokens
        ]

    rows = [
        row._replace(
            tokens=renamed(row.tokens),
            history=None if row.history is None else renamed(row.history),
        )
        for row in step.rows
    ]
    return step._replace(rows=rows), list(numbers)


def gather(
    drawn: Sequence[Int[Array, " _"]],
    counts: Sequence[int],
    samples: Sequence[int],
    num_tokens: int,
    vocab_size: int,
) -> Int[Array, " M"]:
    """Some tokens of several steps, as the next step takes those that were drawn before it.

    Args:
        counts: How many of each step's are tokens, and no padding.
        samples: Which ones, counted over all steps; at most `num_tokens`.
        num_tokens: M.
    """
    assert len(samples) <= num_tokens, "a step is fed more drawn tokens than it has rows"
    ends = np.cumsum(counts)
    step = np.searchsorted(ends, samples, side="right")
    at = np.zeros((2, num_tokens), np.int32)
    at[:, : len(samples)] = step, samples - (ends - counts)[step]
    tokens: Array = _gather(tuple(drawn), at, vocab_size=vocab_size)
    return tokens


@partial(jax.jit, static_argnames="vocab_size")
def _gather(drawn: tuple[Any, ...], at: Any, *, vocab_size: int) -> Any:
    tokens = jnp.stack(drawn)[at[0], at[1]]
    return jnp.where(tokens < vocab_size, tokens, 0)


def moved(
    packed: np.ndarray,
    shape: StepShape,
    table_width: int,
    step: Step,
    unread: Unread,
    right: Int[Array, " S"],
) -> Int[Array, " P"]:
    """The packed step with its rows, or its samples, moved by the number of right guesses."""
    fields, count = packed_fields(shape, table_width), len(step.samples)
    borders = np.cumsum([len(row.tokens) for row in step.rows])
    row_of_sample = np.searchsorted(borders, step.samples.tokens, side="right")
    follows = np.array(unread.rows, np.int32)
    samples, rows = np.arange(count), np.arange(len(step.rows))
    parts = [(fields["position_of_sample"].start + samples, follows[row_of_sample])]
    if unread.along:
        parts.append((fields["token_of_sample"].start + samples, follows[row_of_sample]))
    else:
        assert int(borders[-1]) == len(rows), "a row that moves has one token"
        parts.append((fields["context_lens"].start + rows, follows))
    at = np.full((2, 2 * shape.num_rows), len(packed), np.int32)  # behind the end: dropped
    both = [np.concatenate(part) for part in zip(*parts, strict=True)]
    at[:, : len(both[0])] = both
    found: Array = _moved(packed, at, right)
    return found


@jax.jit
def _moved(packed: Any, at: Any, right: Any) -> Any:
    return jnp.asarray(packed).at[at[0]].add(right.at[at[1]].get(mode="clip"), mode="drop")


def _padded(numbers: Any, length: int) -> np.ndarray:
    """Zeros behind the numbers, so that programs are few."""
    found = np.asarray(numbers, np.int32)
    missing = bucket(max(1, length), _SIZES) - length
    return np.pad(found, [(0, 0)] * (found.ndim - 1) + [(0, missing)])
