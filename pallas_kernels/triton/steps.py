"""The loop of both kernels: rows of queries attend to their context, a step at a time.

A step is `block_kv` consecutive tokens, wherever their blocks are. The block table is read one step
ahead. If a step loaded its own block numbers, the compiler could not load keys and values ahead.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from pallas_kernels.triton.dialect import dot, load
from pallas_kernels.triton.heads import Parts, read_heads
from pallas_kernels.triton.operands import Geometry, Operands
from pallas_kernels.triton.quantized import widen
from pallas_kernels.triton.softmax import LOG2E, State, empty, gather


class Rows(NamedTuple):
    """M queries of one sequence, of query heads that share one KV head.

    Attributes:
        seq: the queries' sequence.
        kv_head: the queries' KV head.
        first, last: positions of the first and the last query.
        position: position of each row's query.
        token: token of each row in the step.
        head: query head of each row.
        exists: false for padding rows, which make M a power of two.
    """

    seq: Int[Array, ""]
    kv_head: Int[Array, ""]
    first: Int[Array, ""]
    last: Int[Array, ""]
    position: Int[Array, " #M"]
    token: Int[Array, " #M"]
    head: Int[Array, " M"]
    exists: Bool[Array, " M"]

    def place(self) -> tuple[Array, Array]:
        """Index of the rows' vectors in an array [T, H, D]."""
        token = jnp.broadcast_to(self.token, self.head.shape)
        return token[:, None], self.head[:, None]


class Task(NamedTuple):
    """Constants of all steps of a program.

    Attributes:
        operands, shape: the call.
        rows: the rows of queries.
        block_kv: C, tokens in a step.
        q: the queries.
        factor: factor for q.k, which includes the keys' scale.
        slopes: ALiBi slope of each row, in base 2.
    """

    operands: Operands
    shape: Geometry
    rows: Rows
    block_kv: int
    q: Parts
    factor: float | Float[Array, ""]
    slopes: Float[Array, " M"] | None


# Blocks of the next step's tokens [C], and the softmax so far.
Carry = tuple[Array, State]


def make_task(operands: Operands, shape: Geometry, rows: Rows, block_kv: int) -> Task:
    """Loads the rows' queries and slopes, and the keys' scale."""
    exists = rows.exists[:, None]
    q = read_heads(operands.q, rows.place(), shape.dim, exists)
    factor: float | Array = shape.options.scale
    if operands.kv_scales is not None:
        factor = factor * operands.kv_scales[operands.layer[0], 0, rows.kv_head]
    slopes = None
    if operands.alibi_slopes is not None:
        slopes = load(operands.alibi_slopes.at[rows.head], rows.exists, 0.0) * LOG2E
    q = tuple(part.astype(shape.compute_dtype) for part in q)
    return Task(operands, shape, rows, block_kv, q, factor, slopes)


def start(task: Task, step: Int[Array, ""]) -> Carry:
    """The first step's blocks, and an empty softmax."""
    return _blocks(task, step), empty(task.rows.head.shape[0], task.shape.dim)


def attend_steps(
    task: Task, begin: Int[Array, ""], end: Int[Array, ""], carry: Carry, *, masked: bool
) -> Carry:
    """Attends to the steps begin:end. `masked` may be False if every row sees all their tokens."""

    def step(i: Array, carry: Carry) -> Carry:
        blocks, state = carry
        position = _positions(task, i)
        seen = _seen(task, position) if masked else None
        keys = _read(task, position, blocks, 0, seen)
        values = _read(task, position, blocks, 1, seen)
        score = _scores(task, keys, position)
        mask = _mask(task, position) if masked else None
        return _blocks(task, i + 1), gather(state, score, mask, values)

    result: Carry = lax.fori_loop(begin, end, step, carry)
    return result


def value_scale(task: Task) -> float | Array:
    """Factor for the weighted sum of the stored values."""
    kv_scales = task.operands.kv_scales
    return 1.0 if kv_scales is None else kv_scales[task.operands.layer[0], 1, task.rows.kv_head]


def _positions(task: Task, step: Int[Array, ""]) -> Int[Array, " C"]:
    return step * task.block_kv + jnp.arange(task.block_kv, dtype=jnp.int32)


def _seen(task: Task, position: Int[Array, " C"]) -> Bool[Array, " C"]:
    """True for tokens that some row sees. Other slots may hold anything and are never read."""
    seen = position <= task.rows.last
    if task.shape.options.window is not None:
        seen &= position > task.rows.first - task.shape.options.window
    return seen


def _mask(task: Task, position: Int[Array, " C"]) -> Bool[Array, "#M C"]:
    """True where a row sees a token. Padding rows see no more than the last query."""
    query = jnp.minimum(task.rows.position, task.rows.last)[:, None]
    mask = position[None, :] <= query
    if task.shape.options.window is not None:
        mask &= position[None, :] > query - task.shape.options.window
    return mask


def _blocks(task: Task, step: Int[Array, ""]) -> Int[Array, " C"]:
    """Blocks of a step's tokens; 0 for tokens that no row sees."""
    position = _positions(task, step)
    entry = task.operands.block_tables.at[task.rows.seq, lax.div(position, task.shape.block_size)]
    return load(entry, _seen(task, position), 0)


def _read(
    task: Task,
    position: Int[Array, " C"],
    blocks: Int[Array, " C"],
    which: int,
    seen: Bool[Array, " C"] | None,
) -> Parts:
    """Keys (0) or values (1) of tokens. Zeros if not seen, since a weight of 0 hides no NaN."""
    shape = task.shape
    stored = (task.operands.layer[0] * 2 + which) * shape.num_blocks
    row = (stored + blocks) * shape.kv_heads + task.rows.kv_head
    offset = lax.rem(position, shape.block_size)
    mask = None if seen is None else seen[:, None]
    found = read_heads(task.operands.pages, (row[:, None], offset[:, None]), shape.dim, mask)
    return tuple(widen(part, shape.compute_dtype) for part in found)


def _scores(task: Task, keys: Parts, position: Int[Array, " C"]) -> Float[Array, "M C"]:
    """Scores in base 2, unmasked."""
    soft_cap = task.shape.options.soft_cap
    products = [dot(a, b, transpose=True) for a, b in zip(task.q, keys, strict=True)]
    score: Array = sum(products[1:], products[0])
    if soft_cap is None:
        score = score * (task.factor * LOG2E)
    else:
        score = jnp.tanh(score * (task.factor / soft_cap)) * (soft_cap * LOG2E)
    if task.slopes is not None:
        distance = position[None, :] - task.rows.position[:, None]
        score = score + task.slopes[:, None] * distance.astype(jnp.float32)
    return score
