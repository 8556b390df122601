"""Attention over a paged KV cache, and the operations on its blocks (SOSP'23 section 4).

Each operation is one public function. Annotations give the shape of every array.

    write_kv                 store the keys and values of this step's tokens in their slots
    paged_attention          attention of a ragged batch (decodes, prefill chunks, any mixture)
    make_metadata            choose a backend and lay out a step's work for it, for all layers
    bidirectional_attention  attention of whole sequences without a cache: encoders
    copy_blocks              copy-on-write
    gather_blocks            swap out
    scatter_blocks           swap in
    merge_partials           join attention over disjoint parts of the context
    grouped_product          products of rows in groups, each with its own weight: experts
    quantized_matmul         products with matrices of codes and their scales
    sum_over_devices         the sum of what each device of a mesh has, in one order

The cache is one array `[L, 2, N, K, B, D]`: layers, key or value, blocks, KV heads, block size,
head dimension. In a cache `[L, 1, N, K, B, D]` each value is the beginning of its key, as in
latent attention. `backend` names an implementation, or several in order of preference; None picks
the best one. The package needs jax and nothing else. Its backend for CPUs, "numba", is in the
package `cpu_kernels`.
"""

from pallas_kernels.bidirectional_attention import bidirectional_attention
from pallas_kernels.block_copy import copy_blocks, gather_blocks, scatter_blocks
from pallas_kernels.grouped_product import grouped_product
from pallas_kernels.kv_write import write_kv
from pallas_kernels.merge import merge_partials
from pallas_kernels.metadata import AttentionMetadata, MetadataError, make_metadata
from pallas_kernels.paged_attention import paged_attention
from pallas_kernels.quantized_matmul import quantized_matmul
from pallas_kernels.sum_over_devices import sum_over_devices

__all__ = [
    "AttentionMetadata",
    "MetadataError",
    "bidirectional_attention",
    "copy_blocks",
    "gather_blocks",
    "grouped_product",
    "make_metadata",
    "merge_partials",
    "paged_attention",
    "quantized_matmul",
    "scatter_blocks",
    "sum_over_devices",
    "write_kv",
]
