"""Products with quantised weights, for GPUs and their XLA twin, against NumPy in float64."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.experimental.pallas.mosaic_gpu import InterpretGPUParams, force_gpu_interpret_mode

from pallas_kernels import quantized_matmul
from pallas_kernels.device import interpreting
from pallas_kernels.mosaic.quantized_matmul import parts_of, sums_of
from pallas_kernels.mosaic.quantized_plan import STAGES, plan
from pallas_kernels.quantized_matmul import FEW_ROWS

E4M3 = ml_dtypes.float8_e4m3fn
LAYERS = 2
KINDS = ("int8", "int4", "fp8", "fp8 by fp8")
# One shape for each: [tokens, rows, columns], group. The interpreter takes seconds to compile one.
SHAPES = {
    "int8": (5, 72, 192, 32),
    "int4": (9, 64, 256, 64),
    "fp8": (1, 64, 256, 256),
    "fp8 by fp8": (8, 72, 256, 128),
}


class Case(NamedTuple):
    """Arguments of a product, and its numbers: x, and the second layer's weight."""

    x: Any
    codes: Any
    scales: Any
    minimums: Any
    x_scales: Any
    real_x: np.ndarray
    weight: np.ndarray


def make(
    kind: str, seed: int, shape: tuple[int, ...], *, whole: bool = False, minimums: bool = False
) -> Case:
    """Random codes; with `whole`, numbers whose products and sums float32 has exactly."""
    tokens, rows, size, group = shape
    rng = np.random.default_rng(seed)
    codes, meant = _codes(kind, rng, (LAYERS, rows, size), whole)
    groups = (LAYERS, -(-size // group), rows)
    scales = 2.0 ** rng.integers(-3, 3, groups) if whole else rng.uniform(0.01, 2, groups)
    scales = scales.astype(np.float32)
    lowest = rng.integers(-4, 5, groups).astype(np.float32) if minimums else None
    x = rng.integers(-3, 4, (tokens, size)) if whole else rng.standard_normal((tokens, size))
    narrow = kind == "fp8 by fp8"
    held = np.asarray(x, E4M3 if narrow else ml_dtypes.bfloat16)
    x_scales = (2.0 ** rng.integers(-2, 3, tokens)).astype(np.float32) if narrow else None
    real_x = held.astype(np.float64) * (1 if x_scales is None else x_scales[:, None])
    weight = meant[1] * spread(scales[1], group, size)
    if lowest is not None:
        weight = weight + spread(lowest[1], group, size)
    return Case(held, codes, scales, lowest, x_scales, real_x, weight)


def _codes(
    kind: str, rng: np.random.Generator, shape: tuple[int, ...], whole: bool
) -> tuple[np.ndarray, np.ndarray]:
    if kind == "int8":
        codes = rng.integers(-128, 128, shape).astype(np.int8)
        return codes, codes.astype(np.float64)
    if kind == "int4":
        found = rng.integers(0, 16, shape)
        return (found[..., ::2] | found[..., 1::2] << 4).astype(np.uint8), found - 8.0
    codes = (rng.integers(-8, 9, shape) if whole else rng.normal(0, 30, shape)).astype(E4M3)
    return codes, codes.astype(np.float64)


def spread(shared: np.ndarray, group: int, size: int) -> np.ndarray:
    return np.repeat(shared.T.astype(np.float64), group, axis=1)[:, :size]


@partial(jax.jit, static_argnames=("group", "backend"))
def product(case: Case, layer: Any, group: int, backend: str) -> jax.Array:
    return quantized_matmul(
        case.x, case.codes, case.scales, case.minimums, layer=layer, group=group,
        dtype=jnp.dtype("float32"), x_scales=case.x_scales, backend=backend,
    )  # fmt: skip


def multiplied(case: Case, shape: tuple[int, ...], backend: str) -> np.ndarray:
    without = case._replace(real_x=np.zeros(0), weight=np.zeros(0))
    arrays = jax.tree.map(jnp.asarray, without)
    return np.asarray(product(arrays, jnp.int32(1), shape[3], backend), np.float64)


def check(case: Case, shape: tuple[int, ...], backend: str) -> None:
    """float32's rounding of a sum.

    The twin also rounds weights to bfloat16 where it scales them, and XLA some products.
    """
    expected = case.real_x @ case.weight.T
    magnitude = np.abs(case.real_x) @ np.abs(case.weight).T
    if case.minimums is not None:
        magnitude += np.abs(case.real_x).sum(1)[:, None] * np.abs(case.minimums[1]).max() * 2
    unit = 2.0**-8 if backend == "xla" else shape[2] * 2.0**-24
    assert (np.abs(multiplied(case, shape, backend) - expected) <= unit * magnitude).all()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**24), minimums=st.booleans())
def test_any_numbers(kind: str, seed: int, minimums: bool) -> None:
    shape = SHAPES[kind]
    case = make(kind, seed, shape, minimums=minimums)
    for backend in ("xla", "mosaic"):
        check(case, shape, backend)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(seed=st.integers(0, 2**24))
def test_both_are_exact_where_float32_is(kind: str, seed: int) -> None:
    shape = SHAPES[kind]
    case = make(kind, seed, shape, whole=True, minimums=True)
    expected = case.real_x @ case.weight.T
    for backend in ("xla", "mosaic"):
        np.testing.assert_array_equal(multiplied(case, shape, backend), expected)


SIZES = st.integers(1, 70)


@given(
    kind=st.sampled_from(KINDS),
    tokens=st.integers(1, 2 * FEW_ROWS),
    rows=SIZES,
    size=SIZES,
    group=SIZES,
    seed=st.integers(0, 2**24),
)
@example(kind="int4", tokens=1, rows=3, size=34, group=32, seed=0)  # the last group is shorter
@example(kind="int4", tokens=1, rows=9, size=32, group=4, seed=0)
@example(kind="int4", tokens=1, rows=3, size=10, group=3, seed=0)  # a byte has columns of two
@example(kind="fp8", tokens=FEW_ROWS + 1, rows=3, size=10, group=4, seed=0)
@settings(max_examples=4)
def test_the_twin_takes_any_shape(
    kind: str, tokens: int, rows: int, size: int, group: int, seed: int
) -> None:
    shape = (tokens, rows, size + size % 2, group)
    check(make(kind, seed, shape, minimums=True), shape, "xla")


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("int4", (3, 72, 192, 32)),  # steps of 64 columns; the tiles of rows overlap
        # Three thread blocks share 14 steps unevenly; 5 of them do not fit into 4 stages.
        ("int4", (3, 64, 14 * 128, 128)),
        ("int4", (3, 64, 256, 256)),  # all columns share a scale
        ("int8", (3, 64, 384, 256)),  # the last group is shorter
        ("int8", (3, 64, 192, 16)),  # as many columns as an instruction multiplies
        ("fp8 by fp8", (3, 64, 192, 192)),
        ("int4", (133, 64, 128, 64)),  # two tiles of tokens
    ],
)
def test_other_shapes_are_exact(kind: str, shape: tuple[int, ...]) -> None:
    case = make(kind, 1, shape, whole=True, minimums=True)
    found = multiplied(case, shape, "mosaic")
    np.testing.assert_array_equal(found, case.real_x @ case.weight.T)


@pytest.mark.skipif(not interpreting(), reason="the interpreter is for the CPU")
@pytest.mark.parametrize(
    ("kind", "shape"), [("int4", (3, 64, (STAGES + 2) * 128, 128)), ("int8", (40, 64, 512, 512))]
)
def test_i48_no_races(kind: str, shape: tuple[int, ...]) -> None:
    """Stages are used again, by tiles of few tokens and of many."""
    case = make(kind, 0, shape, whole=True, minimums=True)
    with force_gpu_interpret_mode(InterpretGPUParams(detect_races=True, on_race="raise")):
        found = multiplied(case, shape, "mosaic")
    np.testing.assert_array_equal(found, case.real_x @ case.weight.T)


def test_parts_of_x_are_in_the_order_of_the_codes() -> None:
    x = np.arange(3 * 256).reshape(3, 256) % 97
    sizes = plan(3, 64, 256, 64, packed=True)
    parts = np.asarray(parts_of(jnp.asarray(x, jnp.bfloat16), sizes), np.float64)
    assert parts.shape == (8, 8, 32)
    np.testing.assert_array_equal(parts[2, :3], x[:, 64:128:2])
    np.testing.assert_array_equal(parts[3, :3] * 16, x[:, 65:128:2])
    assert not parts[:, 3:].any()


@pytest.mark.parametrize("seed", [27, 68, 151])  # for which XLA's sum has other bits for 3 tokens
def test_sums_of_x_do_not_depend_on_the_number_of_tokens(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((200, 1024)).astype(ml_dtypes.bfloat16)
    few, many = (
        np.asarray(jax.jit(partial(sums_of, sizes=plan(n, 64, 1024, 64, packed=True)))(x[:n]))
        for n in (3, 200)
    )
    np.testing.assert_array_equal(few[:, :3], many[:, :3])
    exact = x.astype(np.float64).reshape(200, -1, 64).sum(-1).T
    np.testing.assert_allclose(many[:, :200], exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "rows", "size", "splits"),
    [(1, 4096, 4096, 8), (2048, 4096, 4096, 1), (1, 64, 128, 1)],
)
def test_few_tokens_share_columns(tokens: int, rows: int, size: int, splits: int) -> None:
    """Thread blocks for all SMs, unless they had too few steps each."""
    assert plan(tokens, rows, size, 64, packed=True).splits == splits


def test_what_does_not_fit_is_refused() -> None:
    x, scales = jnp.ones((2, 256), jnp.bfloat16), jnp.ones((1, 4, 64))
    codes = jnp.ones((1, 64, 256), jnp.int8)
    call: dict[str, Any] = {"layer": 0, "group": 64, "dtype": jnp.dtype("float32")}

    def refused(message: str, *arrays: Any, **changes: Any) -> None:
        with pytest.raises(ValueError, match=message):
            quantized_matmul(*arrays, **{**call, "backend": "mosaic", **changes})

    refused(r"expected codes of int8, uint8, float8_e4m3fn", x, codes.astype(jnp.int16), scales)
    refused(r"expected x \[T, in\] and codes \[L, out, bytes", x, codes.astype(jnp.uint8), scales)
    refused(r"group=0 must be at least 1", x, codes, scales, group=0)
    refused(r"expected scales \[L, groups, out\] = \(1, 2, 64\)", x, codes, scales, group=128)
    lowest = scales.astype(jnp.bfloat16)
    refused(r"expected minimums .* = \(1, 4, 64\) of float32", x, codes, scales, lowest)
    refused(r"x_scales belong to x of float8_e4m3fn", x, codes, scales, x_scales=jnp.ones(2))
    narrow = x.astype(jnp.float8_e4m3fn)
    more = {"x_scales": jnp.ones(2)}
    refused(r"x of float8_e4m3fn with codes of int8", narrow, codes, scales, **more)
    refused(r"x of float32 with codes of int8", x.astype(jnp.float32), codes, scales)
    refused(r"weights \[60, 256\] \(at least 64 rows", x, codes[:, :60], scales[..., :60])
    refused(r"groups of 100 in rows of 256", x, codes, scales[:, :3], group=100)
    refused(r"groups of 8 in rows of 256 .* 16", x, codes, jnp.ones((1, 32, 64)), group=8)
    nibbles = codes[..., :128].astype(jnp.uint8)
    refused(r"groups of 16 in .* 32", x, nibbles, jnp.ones((1, 16, 64)), group=16)
    same = narrow, codes.astype(jnp.float8_e4m3fn), scales
    refused(r"groups of 64 in rows of 256 columns \(multiples of 128", *same, **more)
    refused(r"'triton' lacks", x, codes, scales, backend="triton")
