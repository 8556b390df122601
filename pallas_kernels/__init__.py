"""Attention over a paged KV cache, and the operations on its blocks (SOSP'23 section 4).

One public function an operation; every array shape stands in its annotation:

    write_kv          store the keys and values of this step's tokens in their slots
    paged_attention   attention of a ragged batch (decodes, prefill chunks, any mixture)
    make_metadata     what `paged_attention` needs and is the same in all layers: the choice of
                      a backend, and the step's work laid out for it
    copy_blocks       copy-on-write
    gather_blocks     swap out        scatter_blocks    swap in
    merge_partials    join attention over disjoint parts of the context

The cache is one array `[L, 2, N, K, B, D]`: layers, key or value, blocks, KV heads, block size,
head dimension. `backend` names an implementation, or several in order of preference; None picks
one. Needs jax and nothing else; the backend for CPUs, "numba", is the package `cpu_kernels`.
"""

from pallas_kernels.block_copy import copy_blocks, gather_blocks, scatter_blocks
from pallas_kernels.kv_write import write_kv
from pallas_kernels.merge import merge_partials
from pallas_kernels.metadata import AttentionMetadata, MetadataError, make_metadata
from pallas_kernels.paged_attention import paged_attention

__all__ = [
    "AttentionMetadata",
    "MetadataError",
    "copy_blocks",
    "gather_blocks",
    "make_metadata",
    "merge_partials",
    "paged_attention",
    "scatter_blocks",
    "write_kv",
]
