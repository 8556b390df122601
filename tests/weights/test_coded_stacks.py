"""Rows of codes in the stacks that a GPU's kernel reads, interpreted: against the oracle."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_engine.operations import coded_format
from jax_engine.weights.coded import Coded
from jax_engine.weights.coded_stacks import CodedStacks, kind_in_stacks
from jax_engine.weights.codes import E4M3, INT8, Kind, numbers
from jax_engine.weights.dense import Dense
from jax_engine.weights.format import Matrix, Weight
from jax_engine.weights.panels import Panels
from jax_engine.weights.tensor_source import CodesSource
from jax_engine.weights.transforms import Stack, Tensor, Transform, elements
from pallas_kernels import backends
from reference.quantization import awq, compressed_tensors, fp8, gptq
from tests.models.quantised_files import Stored, Tensors, module, opened
from tests.weights.coded_rows import FP4, KINDS, NIBBLES, RowsSource, random_rows

BFLOAT16, FLOAT32 = jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float32)
# The kernel's tiles of 64 rows overlap, and rows of 160 columns are filled up to 192.
LAYERS, ROWS, SIZE, GROUP, TOKENS = 2, 96, 160, 32, 5
NAME = "model.layers.{layer}.q_proj"
Quantised = tuple[dict[str, Any], np.ndarray]  # a module's parts, and its numbers


def by_gptq(x: np.ndarray, bits: int, group: int = GROUP, **options: Any) -> Quantised:
    stored = gptq.quantise(x, bits, group, **options)
    return stored._asdict(), gptq.decode(stored, bits)


def in_act_order(x: np.ndarray) -> Quantised:
    """Each layer in an order of its own."""
    order = np.argsort(x[0]).astype(np.int32)
    return by_gptq(x, 4, symmetric=True, order=order)


def by_awq(x: np.ndarray) -> Quantised:
    stored = awq.quantise(x, GROUP)
    return stored._asdict(), awq.decode(stored)


def by_packing(x: np.ndarray) -> Quantised:
    stored = compressed_tensors.quantise_packed(x, 4, GROUP, symmetric=True)
    parts = stored._asdict() | {"weight_shape": np.array(stored.weight_shape)}
    return parts, compressed_tensors.decode_packed(stored, 4)


def by_fp8(x: np.ndarray) -> Quantised:
    stored = fp8.quantise(x, (16, GROUP))
    parts = {"weight": Stored(stored.weight, "F8_E4M3"), "weight_scale_inv": stored.scale}
    return parts, fp8.decode(stored)


GPTQ = {"quant_method": "gptq", "sym": False}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP},
        }
    },
}
METHODS: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], Quantised]]] = {
    "gptq": (GPTQ | {"bits": 4, "group_size": GROUP}, partial(by_gptq, bits=4)),
    "gptq-3": (
        GPTQ | {"bits": 3, "group_size": GROUP, "sym": True},
        partial(by_gptq, bits=3, symmetric=True),
    ),
    "gptq-8": (GPTQ | {"bits": 8, "group_size": -1}, partial(by_gptq, bits=8, group=SIZE)),
    "gptq-act-order": (
        GPTQ | {"bits": 4, "group_size": GROUP, "sym": True, "desc_act": True},
        in_act_order,
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP}, by_awq),
    "packed": (PACKED, by_packing),
    "fp8": ({"quant_method": "fp8", "weight_block_size": [16, GROUP]}, by_fp8),
}


def checkpoint(method: str, matrices: np.ndarray, folder: Path) -> tuple[CodesSource, np.ndarray]:
    """Quantised by the oracle, as a layer each; and what the oracle decodes."""
    quantization, quantise = METHODS[method]
    tensors: Tensors = {}
    decoded = []
    for layer, matrix in enumerate(matrices):
        parts, meant = quantise(matrix)
        tensors |= module(NAME.format(layer=layer), parts)
        decoded.append(meant)
    return opened(folder, tensors, quantization), np.stack(decoded)


def loaded(
    source: CodesSource, made_of: Transform, matrix: Matrix, *, ordered: bool = False
) -> Weight:
    """A weight read into memory that held other numbers, or none."""
    kinds = tuple(source.kinds)
    kind = kind_in_stacks(kinds)
    assert kind is not None
    form = CodedStacks(kinds, kind, ordered)
    held = {
        name: np.full(
            one.shape, np.nan if jnp.issubdtype(one.dtype, jnp.floating) else 7, one.dtype
        )
        for name, one in form.arrays(matrix).items()
    }
    for index, part, words in elements(made_of):
        here = {name: array[index] for name, array in held.items()}
        form.load(source, part, words, here, matrix._replace(shape=matrix.shape[len(index) :]))
    arrays = {name: jnp.asarray(array) for name, array in held.items()}
    return Weight(arrays, matrix=matrix, format=form)


def multiplied(weight: Weight, x: np.ndarray, layer: int | None) -> np.ndarray:
    """By what is compiled once for all kinds that are held alike."""
    form = replace(weight.format, kinds=())  # type: ignore[type-var]
    number = None if layer is None else jnp.int32(layer)
    held = jnp.asarray(x, BFLOAT16)
    out = _multiplied(held, dict(weight.arrays), number, form, weight.matrix)
    return np.asarray(out, np.float64)


@partial(jax.jit, static_argnames=("form", "matrix"))
def _multiplied(x: Any, arrays: Any, layer: Any, form: CodedStacks, matrix: Matrix) -> jax.Array:
    weight = Weight(arrays, matrix=matrix, format=form)
    return weight.format.matmul(x, weight, layer, None, out_dtype=FLOAT32)


def random_x(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((TOKENS, size)).astype(BFLOAT16)


def assert_near(found: np.ndarray, x: np.ndarray, weight: np.ndarray) -> None:
    """float32's rounding of the sums, and of numbers that differ by up to 16 steps from zero."""
    real, wide = x.astype(np.float64), weight.astype(np.float64)
    largest = np.abs(wide).max(axis=1)
    error = np.abs(found - real @ wide.T)
    assert (error <= SIZE * 2.0**-23 * np.abs(real).sum(axis=1)[:, None] * largest).all()


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**24), layer=st.integers(0, LAYERS - 1))
def test_products_with_what_the_oracle_decodes(method: str, seed: int, layer: int) -> None:
    rng = np.random.default_rng(seed)
    matrices = rng.standard_normal((LAYERS, ROWS, SIZE), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        source, decoded = checkpoint(method, matrices, Path(folder))
        stack = Stack("layer", range(LAYERS), Tensor(NAME + ".weight"))
        matrix = Matrix((LAYERS, ROWS, SIZE), BFLOAT16)
        weight = loaded(source, stack, matrix, ordered="order" in method)
    x = random_x(seed)
    assert_near(multiplied(weight, x, layer), x, decoded[layer])


# Rows of two kinds: of 4 bits with and without minimums, of 4 and 8 bits, of K-quants.
@pytest.mark.parametrize("used", [(0, 1), (0, 5), (3, 2), (3, 6)], ids=str)
def test_kinds_meet_in_one_matrix(used: tuple[int, ...]) -> None:
    """Scales are powers of two, and so nothing is rounded; each row has its own kind."""
    kinds = tuple(KINDS[kind] for kind in used)
    source = RowsSource({"w": random_rows((ROWS,), SIZE, kinds, {0, 1}, 3)}, kinds)
    weight = loaded(source, Tensor("w"), Matrix((ROWS, SIZE), BFLOAT16))
    assert isinstance(weight.format, CodedStacks)
    assert weight.format.kind.bits == (8 if used in ((0, 5), (3, 6)) else 4)
    x = np.random.default_rng(1).integers(-4, 5, (TOKENS, SIZE)).astype(np.float32)
    expected = numbers(source.tensors["w"], kinds)
    np.testing.assert_array_equal(multiplied(weight, x, None), x @ expected.T)
    ids = np.array([0, ROWS - 1, ROWS + 9, 3])
    rows = weight.format.take_rows(weight, jnp.asarray(ids, jnp.int32))
    np.testing.assert_array_equal(rows, expected[ids.clip(max=ROWS - 1)].astype(BFLOAT16))


# With groups of 32 a tile has at most 64 tokens, with groups of 64 it has 128.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "counts"), [(2, (8, 3, 1)), (1, (100, 64)), (2, (200, 128))], ids=str
)
@settings(max_examples=3)
@given(seed=st.integers(0, 2**24))
def test_a_rows_bits_do_not_depend_on_those_after_it(
    kind: int, counts: tuple[int, ...], seed: int
) -> None:
    """Nor on how many there are, in tiles of as many tokens.

    Two thread blocks share the columns of a row. In tiles of other sizes NumPy's product, which the
    interpreter calls, adds up in another order for some numbers.
    """
    kinds = (KINDS[kind],)
    source = RowsSource({"w": random_rows((64,), 1024, kinds, {0}, seed)}, kinds)
    weight = loaded(source, Tensor("w"), Matrix((64, 1024), BFLOAT16))
    x = np.random.default_rng(seed).standard_normal((counts[0], 1024)).astype(BFLOAT16)
    expected = multiplied(weight, x, None)
    for count in counts[1:]:
        np.testing.assert_array_equal(multiplied(weight, x[:count], None), expected[:count])


def choice(kind: Kind, shape: tuple[int, ...], *, dtype: Any = BFLOAT16, plain: Any = None) -> Any:
    matrix = Matrix(shape, jnp.dtype(dtype))
    rows = [[(kind, shape[-2])]]
    return coded_format((kind,), rows, matrix, plain or Dense(), ordered=False)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "sm_version", lambda: 90)


@pytest.mark.usefixtures("hopper")
def test_a_hopper_gpu_holds_what_its_kernel_reads() -> None:
    four = Kind(NIBBLES, 32, True)
    held = choice(four, (64, 100))
    assert isinstance(held, CodedStacks) and held.kinds == (four,)
    for kind in (Kind(INT8, 128), Kind(E4M3, 128), KINDS[0], KINDS[3], KINDS[6], Kind(INT8, 256)):
        assert isinstance(choice(kind, (64, 256)), CodedStacks)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    ("kind", "shape", "dtype"),
    [
        (Kind(FP4, 32), (64, 64), "bfloat16"),  # a table
        (Kind(NIBBLES, 16), (64, 64), "bfloat16"),  # groups smaller than a product of the kernel
        (Kind(INT8, 48), (64, 192), "bfloat16"),
        (Kind(INT8, 32), (60, 64), "bfloat16"),  # fewer rows than a tile
        (Kind(INT8, 32), (68, 64), "bfloat16"),
        (Kind(INT8, 32), (64, 64), "float32"),
        (Kind(INT8, 32), (64, 64), "float16"),
        (Kind(INT8, 32), (2, 64, 64), "bfloat16"),  # experts
    ],
)
def test_what_the_kernel_lacks_stays_with_xla(kind: Kind, shape: Any, dtype: str) -> None:
    assert isinstance(choice(kind, shape, dtype=dtype), Coded)


def test_other_devices_hold_other_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind(NIBBLES, 32, True)
    assert isinstance(choice(kind, (64, 64)), Coded)
    for other in (80, 100):
        monkeypatch.setattr(backends, "sm_version", lambda version=other: version)
        assert isinstance(choice(kind, (64, 64)), Coded)
    assert not isinstance(choice(kind, (64, 64), plain=Panels()), CodedStacks | Coded)
