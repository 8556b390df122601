"""A third format, for tests: int8 codes with a scale for each row. One class in one file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_engine.weights.format import ArraySpec, Matrix, Weight, WeightFormat
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Shape, Transform, Words


@dataclass(frozen=True)
class Int8(WeightFormat):
    """Two arrays: codes int8 [*stack, out, in], and scales [*stack, out], powers of two."""

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        return {
            "codes": ArraySpec(matrix.shape, jnp.dtype(jnp.int8)),
            "scale": ArraySpec(matrix.shape[:-1], jnp.dtype(jnp.float32)),
        }

    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        wide = values.astype(np.float32)
        largest = np.abs(wide).max(axis=-1)
        scale = np.exp2(np.ceil(np.log2(np.maximum(largest, 2.0**-100) / 127)))
        held["scale"][...] = scale
        held["codes"][...] = np.rint(wide / scale[..., None])

    def matmul(
        self, x: Any, weight: Weight, layer: Any, num_rows: Any, *, out_dtype: jnp.dtype
    ) -> Any:
        codes, scale = weight.arrays["codes"], weight.arrays["scale"]
        wide = codes.astype(jnp.float32)
        contract = (((1,), (1,)), ((), ()))
        out = lax.dot_general(x.astype(jnp.float32), wide, contract) * scale
        return out.astype(out_dtype)

    def take_rows(self, weight: Weight, ids: Any) -> Any:
        codes, scale = weight.arrays["codes"], weight.arrays["scale"]
        rows = jnp.clip(ids, 0, len(scale) - 1)
        return (codes[rows] * scale[rows, None]).astype(weight.matrix.dtype)


@dataclass(frozen=True)
class Int8Checkpoint(Int8):
    """The same, where checkpoints hold the codes and, under another name, the scales."""

    def tensors(
        self, made_of: Transform, matrix: Matrix, words: Words
    ) -> Iterator[tuple[str, Shape]]:
        yield from made_of.tensors(matrix.shape, words)
        yield from _scales(made_of).tensors(matrix.shape[:-1], words)

    def load(
        self,
        source: TensorSource,
        made_of: Transform,
        words: Words,
        held: Mapping[str, np.ndarray],
        matrix: Matrix,
    ) -> None:
        made_of.read_into(source, held["codes"], words)
        _scales(made_of).read_into(source, held["scale"], words)


def _scales(made_of: Transform) -> Transform:
    """Rows are put in the same order, since scales have the same first axis."""
    return made_of.renamed(lambda name: name.replace(".weight", ".scale"))


def rounded(values: np.ndarray) -> np.ndarray:
    """The numbers [.., out, in] that the format makes of these; of its own numbers the same."""
    matrix = Matrix(values.shape, jnp.dtype(values.dtype))
    held = {name: np.empty(a.shape, a.dtype) for name, a in Int8().arrays(matrix).items()}
    Int8().pack(values, held, matrix)
    found: np.ndarray = held["codes"] * held["scale"][..., None]
    return found.astype(values.dtype)
