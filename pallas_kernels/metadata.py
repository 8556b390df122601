"""What one step's attention needs and is the same in all layers, computed once a step."""

import dataclasses
import functools
from typing import Any

import jax
from jaxtyping import Array, Int

from pallas_kernels.backends import Backend, choose_backend, implementation
from pallas_kernels.checks import check_step


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["work"],
    meta_fields=["backend", "num_tokens", "num_seqs", "decode_only"],
)
@dataclasses.dataclass(frozen=True)
class AttentionMetadata:
    """The work of one step, laid out for one backend.

    Attributes:
        work: the backend's own lists of what there is to do.
        backend: which one that is.
        num_tokens: T, the padded number of tokens of the step.
        num_seqs: S, the padded number of sequences.
        decode_only: no sequence has several query tokens.
    """

    work: Any
    backend: str
    num_tokens: int
    num_seqs: int
    decode_only: bool

    def check(self, num_tokens: int, num_seqs: int) -> None:
        """Raise ValueError where this belongs to a step of other sizes."""
        if (self.num_tokens, self.num_seqs) != (num_tokens, num_seqs):
            raise ValueError(
                f"metadata of another step: made for T={self.num_tokens} S={self.num_seqs}, given "
                f"with T={num_tokens} S={num_seqs}"
            )


def make_metadata(
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    decode_only: bool = False,
    backend: Backend = None,
) -> AttentionMetadata:
    """Prepare one step's attention; see `paged_attention` for the arrays.

    Args:
        block_tables: block tables; only the shape is used.
        context_lens: context lengths, this step's tokens included.
        query_start_loc: boundaries of the sequences' query tokens.
        num_tokens: T, the padded number of tokens of the step.
        decode_only: a promise, not checked, that no sequence has more than one query token;
            nothing is compiled for prefills then. T = 1 implies it.
        backend: the same as `paged_attention` will be given.

    Raises:
        ValueError: shapes that do not belong together, no tokens, or a backend that cannot run.
    """
    check_step(block_tables, context_lens, query_start_loc, num_tokens)
    decode_only = decode_only or num_tokens == 1
    name = choose_backend(backend)
    work = implementation(name).make_metadata(
        block_tables, context_lens, query_start_loc, num_tokens, decode_only=decode_only
    )
    return AttentionMetadata(work, name, num_tokens, context_lens.shape[0], decode_only)
