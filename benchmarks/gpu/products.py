"""Products with quantised weights: the layers of a stack larger than L2, one after another.

Predicted for an H100 (3.35 TB/s, 989 TFLOP/s in bfloat16), before anything was run on one. A
matrix of 4096 x 4096 must be read in these times, scales included:

    kind, group     bytes     1 token     2,048 tokens
    bfloat16        33.6 MB   10.0 us     69.5 us (by its arithmetic)
    int8, all       16.8 MB    5.0 us     69.5 us
    int4, 128        8.9 MB    2.7 us     69.5 us
    int4, 32, min   12.6 MB    3.8 us     69.5 us
    fp8, 128        17.3 MB    5.2 us     69.5 us, by fp8 34.7 us

A launch takes 2 to 3 us, so one int4 product of this size cannot reach its limit. An SM reads 14
bytes a clock, in which it makes 64 integer operations. To widen a byte of two codes takes about
four, nearly as long as to read it. Expected: 60 to 80 % of the limit for int8 and
one token, 40 to 60 % for int4. With many tokens one warpgroup widens, multiplies and scales in
turn, and two share an SM: 40 to 60 % of the arithmetic limit, more for larger groups.

Measured on an H100 with one token: 12 to 15 us, 25 to 41 % of the limit. Most of it is a fixed
cost, nearly the same for 8.9 MB as for 16.8 (docs/gpu.md). Many tokens were not timed, nor the real
matrices of a layer, whose larger sizes hide more of that cost.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.gpu.timing import iterations, seconds_each
from pallas_kernels import quantized_matmul

ROTATED = 2**28  # bytes that are read before the same ones are read again: several times L2
LARGEST = {"int8": 3e3, "int4": 200, "fp8": 50}  # result of about this size, without scales
DTYPES = {"int8": "int8", "int4": "uint8", "fp8": "float8_e4m3fn"}


@dataclass(frozen=True)
class Product:
    """x [tokens, size] with a weight [out, size] of codes; group 0: all columns share a scale."""

    kind: str
    group: int
    tokens: int
    minimums: bool = False
    size: int = 4096
    out: int = 4096
    part: str = "quantised weights"

    @property
    def name(self) -> str:
        groups = f"groups of {self.group}" if self.group else "a scale a row"
        groups += ", minimums" * self.minimums
        return f"{self.tokens} x {self.size}, {self.kind} [{self.out}, {self.size}], {groups}"

    @property
    def columns(self) -> int:
        """Columns that share a scale."""
        return self.group or self.size

    @property
    def width(self) -> int:
        """Bytes of a row of codes."""
        return self.size // 2 if self.kind == "int4" else self.size

    @property
    def traffic(self) -> int:
        """Bytes that must be read or written: codes, scales, minimums, x and the result."""
        scales = 4 * self.out * (self.size // self.columns) * (1 + self.minimums)
        return self.out * self.width + scales + 2 * self.tokens * (self.size + self.out)

    @property
    def flops(self) -> int:
        return 2 * self.tokens * self.size * self.out

    def predicted_s(self, bytes_per_s: float, flops_per_s: float) -> float:
        """Seconds if nothing but the memory or nothing but the matrix units were in the way."""
        return max(self.traffic / bytes_per_s, self.flops / flops_per_s)


# (kind, columns of a group, minimums)
_KINDS = (("int8", 0, False), ("int4", 128, False), ("int4", 32, True), ("fp8", 128, False))
# The 8B's real matrices first: gate and up, down. Then a square one, of the first run's table.
PRODUCTS = tuple(
    Product(kind, group, tokens, minimums, size, out)
    for tokens in (1, 256, 2048)
    for out, size in ((28672, 4096), (4096, 14336), (4096, 4096))
    for kind, group, minimums in _KINDS
)
# Not square: the result is made as wide as x.
SMOKE = (Product("int4", 64, 2, minimums=True, size=128, out=256),)


@partial(jax.jit, static_argnums=(0, 1))
def _inputs(product: Product, layers: int) -> tuple[Any, Any, Any, Any]:
    keys = jax.random.split(jax.random.key(0), 3)
    shape = (layers, product.out, product.width)
    if product.kind == "fp8":
        codes = jax.random.normal(keys[0], shape, jnp.bfloat16).astype(DTYPES["fp8"])
    else:
        codes = jax.random.bits(keys[0], shape, jnp.uint8).view(DTYPES[product.kind])
    groups = (layers, product.size // product.columns, product.out)
    # Results are of the size of x, so that they can be the next x.
    scales = jax.random.uniform(keys[1], groups, jnp.float32) / LARGEST[product.kind]
    x = jax.random.normal(keys[2], (product.tokens, product.size), jnp.bfloat16)
    return x, codes, scales, -scales if product.minimums else None


def time_product(product: Product, backend: str, predicted_s: float, smoke: bool) -> float:
    """Microseconds of one product on the device."""
    layers = 2 if smoke else max(2, min(64, -(-ROTATED // (product.out * product.width))))
    inputs, count = _inputs(product, layers), iterations(predicted_s, smoke)

    @jax.jit
    def loop(inputs: Any) -> Any:
        x, *weight = inputs

        # The result is the next x, so that no iteration starts before the last has ended.
        def step(i: Any, x: Any) -> Any:
            y = _multiply(product, backend, (x, *weight), i % layers)
            return jnp.tile(y, (1, -(-product.size // product.out)))[:, : product.size]

        return lax.fori_loop(0, count, step, x)

    return 1e6 * seconds_each(partial(loop, inputs), count, rounds=1 if smoke else 7)


def largest_error(product: Product, backend: str) -> float:
    """Largest difference to the twin's result in float32, over the largest magnitude of that."""
    x, *weight = _inputs(product, 2)
    with jax.default_matmul_precision("highest"):  # a GPU would round float32 to TF32
        exact = _multiply(product, "xla", (x.astype(jnp.float32), *weight), 1)
    mine = _multiply(product, backend, (x, *weight), 1).astype(jnp.float32)
    return float(jnp.abs(mine - exact).max() / jnp.abs(exact).max())


@partial(jax.jit, static_argnums=(0, 1))
def _multiply(product: Product, backend: str, inputs: Any, layer: Any) -> Any:
    x, *weight = inputs
    return quantized_matmul(
        x, *weight, layer=layer, group=product.columns, dtype=x.dtype, backend=backend
    )
