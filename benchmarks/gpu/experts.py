"""Products of a mixture's experts: rows sorted by expert, two layers of weights in turn."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.gpu.timing import iterations, seconds_each
from pallas_kernels import grouped_product

LAYERS = 2


@dataclass(frozen=True)
class Experts:
    """x [rows, size] with weights [experts, size, size]; each row draws its expert.

    Attributes:
        rows: Tokens times the experts of each.
    """

    rows: int
    experts: int = 64
    size: int = 2048  # OLMoE's width; square, so that a result can be the next x
    part: str = "experts"

    @property
    def name(self) -> str:
        return f"{self.rows} rows, {self.experts} experts [{self.size}, {self.size}]"

    @property
    def counts(self) -> np.ndarray:
        """Rows of each expert."""
        chosen = np.random.default_rng(0).integers(self.experts, size=self.rows)
        return np.bincount(chosen, minlength=self.experts)

    @property
    def traffic(self) -> int:
        """Bytes that must be read or written: the weights of experts that have rows, x, result."""
        used = int((self.counts > 0).sum())
        return 2 * self.size * (used * self.size + 2 * self.rows)

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.size * self.size

    def predicted_s(self, bytes_per_s: float, flops_per_s: float) -> float:
        """Seconds if nothing but the memory or nothing but the matrix units were in the way."""
        return max(self.traffic / bytes_per_s, self.flops / flops_per_s)


EXPERTS = (Experts(8), Experts(256), Experts(2048), Experts(16384))
SMOKE = (Experts(16, experts=4, size=128),)


def time_experts(experts: Experts, backend: str, predicted_s: float, smoke: bool) -> float:
    """Microseconds of one product on the device."""
    inputs, count = _inputs(experts), iterations(predicted_s, smoke)

    @jax.jit
    def loop(inputs: Any) -> Any:
        x, weights, starts = inputs

        # The result is the next x, so that no product starts before the last has ended.
        def step(i: Any, x: Any) -> Any:
            for weight in weights:
                x = _multiply(backend, x, weight, starts)
            return x

        return lax.fori_loop(0, count, step, x)

    each = seconds_each(partial(loop, inputs), count, rounds=1 if smoke else 7)
    return (1e6 / LAYERS) * each


def largest_error(experts: Experts, backend: str) -> float:
    """Largest difference to the twin's result in float32, over the largest magnitude of that."""
    x, weights, starts = _inputs(experts)
    with jax.default_matmul_precision("highest"):  # a GPU would round float32 to TF32
        exact = _multiply("xla", x.astype(jnp.float32), weights[1].astype(jnp.float32), starts)
    mine = _multiply(backend, x, weights[1], starts).astype(jnp.float32)
    return float(jnp.abs(mine - exact).max() / jnp.abs(exact).max())


def _inputs(experts: Experts) -> tuple[Any, list[Any], Any]:
    """x, a weight of each layer as an array of its own, and where each expert's rows begin."""
    keys = jax.random.split(jax.random.key(0), 1 + LAYERS)
    x = jax.random.normal(keys[0], (experts.rows, experts.size), jnp.bfloat16)
    shape = (experts.experts, experts.size, experts.size)
    # Results are of the size of x.
    weights = [jax.random.normal(key, shape, jnp.bfloat16) / experts.size**0.5 for key in keys[1:]]
    starts = jnp.asarray(np.concatenate([[0], np.cumsum(experts.counts)]), jnp.int32)
    return x, [weight.astype(jnp.bfloat16) for weight in weights], starts


def _multiply(backend: str, x: Any, weights: Any, starts: Any) -> Any:
    return grouped_product(x, weights, starts, dtype=x.dtype, backend=backend)
