"""The interface of a weight format: the arrays that hold a matrix, and products with them.

Products of feed-forward networks end in an activation function, or in a gate made of one.
"""

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.model_spec import Activation
from jax_engine.weights.low_rank import LowRank
from jax_engine.weights.matrix import VALUES as VALUES
from jax_engine.weights.matrix import ArraySpec as ArraySpec
from jax_engine.weights.matrix import Matrix as Matrix
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Shape, Transform, Words

# gpt-oss bounds the numbers before its gate, and has another slope than silu.
LIMIT, SLOPE = 7.0, 1.702


def activate(x: Float[Array, "*shape"], activation: Activation) -> Float[Array, "*shape"]:
    """The activation of each number."""
    return _FUNCTIONS[activation](x)


def gate(
    gates: Float[Array, "*shape"], up: Float[Array, "*shape"], activation: Activation
) -> Float[Array, "*shape"]:
    """activation(gates) * up. For "clipped_swiglu" both are bounded, and up grows by one."""
    if activation == "clipped_swiglu":
        gates, up = jnp.minimum(gates, LIMIT), jnp.clip(up, -LIMIT, LIMIT) + 1
    return activate(gates, activation) * up


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def _gelu_tanh(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=True)


def _relu2(x: Array) -> Array:
    return jnp.square(jax.nn.relu(x))


def _steep_silu(x: Array) -> Array:
    return x * jax.nn.sigmoid(SLOPE * x)


_FUNCTIONS: dict[Activation, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": jax.nn.relu,
    "relu2": _relu2,
    "clipped_swiglu": _steep_silu,
}


class Weight(nnx.Param):  # type: ignore[misc]
    """A matrix, or a stack of them, in a format, which multiplies by it: `weight.format.matmul`.

    Its value is the format's arrays by name.
    """

    matrix: Matrix
    format: "WeightFormat"

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The format's arrays. Inside the scan over layers, those of one layer."""
        held: Mapping[str, Array] = self.get_value()
        return held


class WeightFormat(abc.ABC):
    """A way to store a matrix. Formats with equal fields are equal; all are hashable.

    A format whose checkpoints hold plain numbers implements the four abstract methods. One with
    checkpoints of its own, such as codes and scales, also overrides `tensors` and `load`.

    Attributes:
        indexed: whether a product receives all layers' weights and a layer's index. Otherwise the
            scan over layers slices the arrays, and a product receives one layer's.
        unchanged: whether its only array, VALUES, is the matrix itself.
    """

    indexed = False
    unchanged = False

    @abc.abstractmethod
    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        """The arrays that hold a matrix, by name. Each begins with the axes of the stack."""

    @abc.abstractmethod
    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        """Stores a matrix's numbers in its arrays. Threads may call it for different layers.

        Args:
            values: [*stack, out, in] in the matrix's dtype.
            held: the arrays to write.
        """

    @abc.abstractmethod
    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        """x @ weight.T, accumulated in float32 and returned in `out_dtype`.

        Args:
            layer: index of the matrix in the stack, if the format is indexed.
            num_rows: how many rows of x are needed; results of the others may be any finite number.
        """

    @abc.abstractmethod
    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        """Rows of a single matrix, in the matrix's dtype; ids out of range are clipped."""

    def tensors(
        self, made_of: Transform, matrix: Matrix, words: Words
    ) -> Iterator[tuple[str, Shape]]:
        """The checkpoint's tensors that `load` reads, each with the shape it must have."""
        return made_of.tensors(matrix.shape, words)

    def load(
        self,
        source: TensorSource,
        made_of: Transform,
        words: Words,
        held: Mapping[str, np.ndarray],
        matrix: Matrix,
    ) -> None:
        """Reads a matrix and stores it in its arrays. Threads may call it for different layers.

        Args:
            made_of: how the numbers of the matrix are made of tensors.
            words: values of the words in braces in the tensors' names.
        """
        values = np.empty(matrix.shape, matrix.dtype)
        made_of.read_into(source, values, words)
        self.pack(values, held, matrix)

    def gated_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, " out"] | None,
        activation: Activation,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        low: LowRank | None = None,
    ) -> Float[Array, "T F"]:
        """activation(gate(x)) * up(x) of a gated matrix, rounded once to x's dtype.

        Args:
            bias: added to the products before the gate.
            layer, num_rows: as in `matmul`.
            low: what adapters add to the products, also before the gate.
        """
        out = self._with_bias(x, weight, bias, layer, num_rows, low)
        return gated(out, activation).astype(x.dtype)

    def activated_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, " out"] | None,
        activation: Activation,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        low: LowRank | None = None,
    ) -> Float[Array, "T out"]:
        """activation(x @ weight.T + bias), rounded once to x's dtype.

        Args:
            layer, num_rows: as in `matmul`.
            low: what adapters add to the products before the activation.
        """
        out = self._with_bias(x, weight, bias, layer, num_rows, low)
        return activate(out, activation).astype(x.dtype)

    def _with_bias(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, " out"] | None,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        low: LowRank | None,
    ) -> Float[Array, "T out"]:
        out = self.matmul(x, weight, layer, num_rows, out_dtype=self.result_dtype(x.dtype))
        if low is not None:
            out = low.added_to(out)
        return out if bias is None else out + bias.astype(out.dtype)

    def grouped_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, "X out"] | None,
        starts: Int[Array, " starts"],
        layer: Int[Array, ""] | None,
    ) -> Float[Array, "T out"]:
        """x[r] @ weight[expert of row r].T + bias[expert], in `result_dtype`.

        The rows are sorted by expert: those of expert e are `starts[e]:starts[e + 1]`. Rows from
        `starts[X]` on are padding, and their results any finite numbers.

        Args:
            layer: as in `matmul`.
        """
        raise NotImplementedError(f"{self} has no products by experts")

    def grouped_gated_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, "X out"] | None,
        activation: Activation,
        starts: Int[Array, " starts"],
        layer: Int[Array, ""] | None,
        low: LowRank | None = None,
    ) -> Float[Array, "T F"]:
        """activation(gate(x)) * up(x) by experts, rounded once to x's dtype.

        Args:
            low: what adapters add to the products before the gate.
        """
        out = self.grouped_matmul(x, weight, bias, starts, layer)
        if low is not None:
            out = low.added_to(out)
        return gated(out, activation).astype(x.dtype)

    def batched_matmul(
        self,
        x: Float[Array, "X T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
    ) -> Float[Array, "X T out"]:
        """x[i] @ weight[i].T for each of a layer's X matrices, in `result_dtype`.

        Args:
            layer, num_rows: as in `matmul`.
        """
        raise NotImplementedError(f"{self} has no batched products")

    def result_dtype(self, dtype: jnp.dtype) -> jnp.dtype:
        """The dtype of a layer's products, for x of this dtype."""
        return dtype


def gated(out: Float[Array, "T two_F"], activation: Activation) -> Float[Array, "T F"]:
    """The gate of products with gate and up, side by side."""
    gates, up = jnp.split(out, 2, axis=-1)
    return gate(gates, up, activation)


def bias_of_rows(
    bias: Float[Array, "X out"], starts: Int[Array, " starts"], rows: int
) -> Float[Array, "T out"]:
    """The bias of each row's expert; see `WeightFormat.grouped_matmul`."""
    expert = (jnp.arange(rows, dtype=jnp.int32)[:, None] >= starts[1:-1]).sum(axis=1)
    return bias[expert]


def empty_weight(matrix: Matrix, weight_format: WeightFormat) -> Weight:
    """A weight of zeros; under `nnx.eval_shape` only its shapes."""
    specs = weight_format.arrays(matrix)
    zeros = {name: jnp.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
    return Weight(zeros, matrix=matrix, format=weight_format)


class Formats(NamedTuple):
    """The formats of a model's weights.

    Attributes:
        products: the format of weights that multiply activations.
        lookup: the format of a table whose rows are only looked up.
    """

    products: WeightFormat
    lookup: WeightFormat


def index_of(layer: Int[Array, ""] | None) -> Int[Array, ""]:
    """A layer's index in its stack; a single matrix is the first of one."""
    return jnp.zeros((), jnp.int32) if layer is None else layer
