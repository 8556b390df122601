"""The part of a step's attention that is the same in all layers, computed once per step."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.backends import (
    BATCH_INVARIANT,
    FOR_DECODE,
    Backend,
    backend_names,
    choose_backend,
    choose_for_call,
    implementation,
)
from pallas_kernels.call import Call, Options
from pallas_kernels.checks import check_step


class MetadataError(ValueError):
    """A call was given metadata that was not made for it."""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["work"],
    meta_fields=["backend", "num_tokens", "num_seqs", "decode_only", "batch_invariant"],
)
@dataclasses.dataclass(frozen=True)
class AttentionMetadata:
    """The work of one step, laid out for one backend, which runs the attention of all layers.

    Attributes:
        work: the backend's own work lists.
        backend: the backend's name.
        num_tokens: T, the padded number of tokens of the step.
        num_seqs: S, the padded number of sequences.
        decode_only: whether no sequence has several query tokens.
        batch_invariant: whether no sum's order may depend on the step's other queries.
    """

    work: Any
    backend: str
    num_tokens: int
    num_seqs: int
    decode_only: bool
    batch_invariant: bool = False

    def check(self, call: Call, options: Options, backend: Backend) -> None:
        """Raises MetadataError if the call has other sizes or cannot run on this backend.

        Args:
            backend: the backends that the call asks for.
        """
        num_tokens, num_seqs = call.q.shape[0], call.context_lens.shape[0]
        if (self.num_tokens, self.num_seqs) != (num_tokens, num_seqs):
            raise MetadataError(
                f"metadata of another step: made for T={self.num_tokens} S={self.num_seqs}, given "
                f"with T={num_tokens} S={num_seqs}"
            )
        if self.backend not in backend_names(backend):
            raise MetadataError(
                f"metadata of another backend: made for {self.backend!r}, given with {backend=}"
            )
        try:
            choose_for_call(self.backend, call, options)
        except ValueError as error:
            raise MetadataError(
                f"metadata of a backend that does not support this call: {error}. "
                "`make_metadata(..., call=(q, kv_cache))` chooses one that does."
            ) from error


def make_metadata(
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    decode_only: bool = False,
    backend: Backend = None,
    call: tuple[Any, Any] | None = None,
    prompt_lens: Int[Array, " S"] | None = None,
    batch_invariant: bool = False,
) -> AttentionMetadata:
    """Prepares the attention of one step, and chooses the backend of all its layers.

    `paged_attention` explains the arrays.

    Args:
        block_tables: block tables; only the shape is used.
        context_lens: context lengths, this step's tokens included.
        query_start_loc: boundaries of the sequences' query tokens.
        num_tokens: T, the padded number of tokens of the step.
        decode_only: the caller's promise, which is not checked, that no sequence has more than
            one query token, which with `batch_invariant` is behind the prompt. Then nothing is
            compiled for prefills. T = 1 implies it without `batch_invariant`.
        backend: a name, several in order of preference, or None for the best one.
        call: the queries and the cache of the calls to come, or `jax.ShapeDtypeStruct`s of them.
            The chosen backend supports them. None chooses by the device alone.
        prompt_lens: where each sequence's prompt ends, for `batch_invariant`.
        batch_invariant: whether a query's bits may depend on its own sequence alone: on its context
            and `prompt_lens`, and not on the step's other queries or their number. Of the GPUs'
            backends only "triton" has it, which costs time. "numba" has it always.

    Raises:
        ValueError: the shapes do not match, there are no tokens, or the backend cannot run, or
            lacks `batch_invariant`.
    """
    check_step(block_tables, context_lens, query_start_loc, num_tokens)
    decode_only = decode_only or (num_tokens == 1 and not batch_invariant)
    if batch_invariant:
        backend = _invariant(backend)
    elif backend is None and decode_only:
        backend = FOR_DECODE
    if call is None:
        name = choose_backend(backend)
    else:
        batch = (block_tables, context_lens, query_start_loc)
        name = choose_for_call(backend, Call(*call, *batch, jnp.int32(0)), Options(scale=1.0))
    # Only the backend that must be told has the arguments.
    invariance: dict[str, Any] = {}
    if batch_invariant and name == "triton":
        invariance = {"prompt_lens": prompt_lens, "batch_invariant": True}
    work = implementation(name).make_metadata(
        context_lens, query_start_loc, num_tokens, decode_only=decode_only, **invariance
    )
    sizes = num_tokens, context_lens.shape[0]
    return AttentionMetadata(work, name, *sizes, decode_only, batch_invariant)


def _invariant(backend: Backend) -> Backend:
    """The backends that were asked for, all of which must be batch-invariant."""
    if backend is None:
        return BATCH_INVARIANT
    lacking = [name for name in backend_names(backend) if name not in BATCH_INVARIANT]
    if lacking:
        raise ValueError(
            f"{backend=}: {lacking[0]!r} lacks batch_invariant; "
            f"{' and '.join(map(repr, BATCH_INVARIANT))} have it"
        )
    return backend
