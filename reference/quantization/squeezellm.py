"""SqueezeLLM: a table of numbers for each output, and outliers in a sparse matrix.

    qweight       int32[K b / 32, N]   codes of 3 or 4 bits: of an output a stream along the inputs
    lookup_table  float[N, 2^b]        what the codes of an output stand for
    rows          int32[N + 1]         the sparse matrix in CSR form: where each output begins,
    cols          int32[outliers]      the inputs,
    vals          float32[outliers]    and what is added to the number from the table

In the place of an outlier is the code of the number that is nearest to zero, and `vals` is less by
that number, so that the sum is the outlier. Whole dense rows (`full_rows`) are not decoded here.

The layout is that of `squeezellm/quant.py` in SqueezeAILab/SqueezeLLM. The method, which weighs
each number by its effect on the loss, is that of Kim et al., "SqueezeLLM" (2023); `quantise` here
weighs all alike.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int32

from reference.quantization.bits import pack_stream, unpack_stream

WORD = np.dtype("<i4")
ROUNDS = 10


class Tensors(NamedTuple):
    """A matrix as a checkpoint has it; without outliers it has no sparse part."""

    qweight: Int32[np.ndarray, "words N"]
    lookup_table: Float[np.ndarray, "N codes"]
    rows: Int32[np.ndarray, "N+1"] | None = None
    cols: Int32[np.ndarray, "outliers"] | None = None
    vals: Float32[np.ndarray, "outliers"] | None = None


def decode(tensors: Tensors, bits: int) -> Float32[np.ndarray, "N K"]:
    """The matrix.

    Eight inputs with the codes 0 to 7, whose numbers are ten times as large, and an outlier:

    >>> word, table = np.array([[0x76543210]], np.int32), np.arange(0, 160, 10.0)[None]
    >>> rows, cols = np.array([0, 1], np.int32), np.array([2], np.int32)
    >>> tensors = Tensors(word, table, rows, cols, np.array([0.5], np.float32))
    >>> decode(tensors, 4).tolist()
    [[0.0, 10.0, 20.5, 30.0, 40.0, 50.0, 60.0, 70.0]]
    """
    codes = unpack_stream(tensors.qweight.T, bits)
    table = tensors.lookup_table.astype(np.float32)
    weights = np.take_along_axis(table, codes.astype(np.intp), axis=1)
    if tensors.rows is not None and tensors.cols is not None and tensors.vals is not None:
        output = np.repeat(np.arange(len(weights)), np.diff(tensors.rows))
        weights[output, tensors.cols] += tensors.vals
    return weights


def quantise(x: Float32[np.ndarray, "N K"], bits: int, outliers: int = 0) -> Tensors:
    """A matrix near x: as many outliers for each output, the others in clusters (k-means)."""
    by_size = np.argsort(-np.abs(x), axis=1, kind="stable")
    cols = np.sort(by_size[:, :outliers], axis=1)
    dense = x.copy()
    np.put_along_axis(dense, cols, 0.0, axis=1)
    ordinary = np.take_along_axis(x, by_size[:, outliers:], axis=1)
    tables = np.stack([_clusters(row, 2**bits) for row in ordinary])
    codes = np.abs(dense[..., None] - tables[:, None]).argmin(axis=-1).astype(np.uint8)
    tensors = Tensors(np.ascontiguousarray(pack_stream(codes, bits, WORD).T), tables)
    if outliers == 0:
        return tensors
    added = np.take_along_axis(x - decode(tensors, bits), cols, axis=1)
    rows = np.arange(len(x) + 1, dtype=np.int32) * outliers
    return tensors._replace(rows=rows, cols=cols.ravel().astype(np.int32), vals=added.ravel())


def _clusters(x: Float32[np.ndarray, "n"], count: int) -> Float32[np.ndarray, "count"]:
    """Middles of clusters. They start with as many numbers in each; then, in rounds, numbers go to
    the nearest middle, and each middle becomes the mean of its numbers, if it has any."""
    middles = np.quantile(x, (np.arange(count) + 0.5) / count)
    for _ in range(ROUNDS):
        nearest = np.abs(x[:, None] - middles).argmin(axis=1)
        sizes = np.bincount(nearest, minlength=count)
        sums = np.bincount(nearest, x, minlength=count)
        middles = np.where(sizes > 0, sums / np.maximum(sizes, 1), middles)
    return np.asarray(middles, np.float32)
