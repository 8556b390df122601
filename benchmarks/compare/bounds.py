"""What this machine allows: read bandwidth, matrix rates, and the bounds of W1 and W2 from them.

W2 reads every weight once a token: bandwidth over the bytes of the weights. W1 is arithmetic at a
batch of 32: the layers' products for every token, the head's for every output token.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.compare.workloads import Job
from benchmarks.machine_limits import read_bandwidth
from cpu_kernels.linear.float_weights import FloatWeights
from cpu_kernels.linear.linear import linear
from cpu_kernels.linear.panels import pack_panels
from jax_engine.models.model_config import ModelConfig

BATCH = 32
ROUNDS = 3
PARTS = 8  # in which XLA's CPU backend shares a product of few rows out better


def layer_shapes(config: ModelConfig) -> list[tuple[int, int]]:
    """[out, in] of the products of one layer."""
    spec = config.spec
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    width, ffn = spec.width, spec.layers[0].mlp.width
    return [(q + 2 * kv, width), (width, q), (2 * ffn, width), (width, ffn)]


def head_shape(config: ModelConfig) -> tuple[int, int]:
    return config.vocab_size, config.hidden_size


def num_weights(config: ModelConfig) -> int:
    """That a token reads: all but the norms; a tied embedding counts once, as the head."""
    layer = sum(out * inner for out, inner in layer_shapes(config))
    return config.spec.num_layers * layer + int(np.prod(head_shape(config)))


def measure(config: ModelConfig) -> dict[str, float]:
    """Bandwidth in GB/s and rates in GFLOP/s, all cores, the best of several rounds."""
    layers = layer_shapes(config) * config.spec.num_layers
    found = {"read_bandwidth_gb_per_s": read_bandwidth() / 1e9}
    for dtype in ("float32", "bfloat16"):
        found |= {
            f"{dtype}_layers_gflop_per_s": _rate(layers, BATCH, dtype),
            f"{dtype}_head_gflop_per_s": _rate([head_shape(config)], BATCH, dtype),
            f"{dtype}_square_gflop_per_s": _rate([(1024, 1024)], 1024, dtype),
        }
    return {name: round(value, 1) for name, value in found.items()}


def _rate(shapes: list[tuple[int, int]], rows: int, dtype: str) -> float:
    """The best of NumPy (float32 only), XLA (weight last, first, in parts) and our kernel."""
    flops = sum(2 * rows * out * inner for out, inner in shapes)
    weights = [np.ones(shape, np.float32) for shape in shapes]
    inputs = {inner: np.ones((rows, inner), np.float32) for _, inner in shapes}
    ways: list[Callable[[], Any]] = []
    if dtype == "float32":
        ways.append(lambda: [inputs[w.shape[1]] @ w.T for w in weights])
    on_device = [jnp.asarray(w, dtype) for w in weights]
    given = {inner: jnp.asarray(x, dtype) for inner, x in inputs.items()}
    panels = [
        (len(w), given[w.shape[1]], jnp.asarray(pack_panels(np.asarray(w)))) for w in on_device
    ]
    ways.append(lambda: jax.block_until_ready([_ours(x, w, width=n) for n, x, w in panels]))
    for contract in ("ri,oi->ro", "oi,ri->or", "poi,ri->por"):
        shaped = [w.reshape(PARTS, -1, w.shape[1]) for w in on_device] if "p" in contract else None
        ways.append(partial(_products, contract, shaped or on_device, given))
    return max(flops / _best_seconds(way) for way in ways) / 1e9


@partial(jax.jit, static_argnames="width")
def _ours(x: jax.Array, panels: jax.Array, width: int) -> jax.Array:
    return linear(x, FloatWeights(panels), width=width)


@partial(jax.jit, static_argnames="contract")
def _product(contract: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    if "p" in contract:
        x = jnp.broadcast_to(x, (PARTS, *x.shape))
        return jax.lax.dot_general(
            weight, x, (((2,), (2,)), ((0,), (0,))), preferred_element_type=jnp.float32
        )
    first, second = (x, weight) if contract.startswith("r") else (weight, x)
    return jnp.einsum(contract, first, second, preferred_element_type=jnp.float32)


def _products(contract: str, weights: list[jax.Array], inputs: dict[int, jax.Array]) -> None:
    jax.block_until_ready([_product(contract, inputs[w.shape[-1]], w) for w in weights])


def _best_seconds(work: Callable[[], Any]) -> float:
    work()
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def bounds(
    config: ModelConfig, measured: dict[str, float], jobs: list[Job], dtype: str
) -> dict[str, float]:
    """Output tokens a second that the machine allows, for W1's jobs and for one stream (W2).

    A CPU without instructions for bfloat16 may multiply float32 faster: the better rate counts.
    """
    rates = {
        part: max(measured[f"{kind}_{part}_gflop_per_s"] for kind in {"float32", dtype}) * 1e9
        for part in ("layers", "head")
    }
    head = int(np.prod(head_shape(config)))
    num_out = sum(job.output_len for job in jobs)
    num_all = num_out + sum(len(job.prompt) for job in jobs)
    layers_s = 2 * num_all * (num_weights(config) - head) / rates["layers"]
    head_s = 2 * num_out * head / rates["head"]
    weight_bytes = num_weights(config) * (4 if dtype == "float32" else 2)
    return {
        "W1": round(num_out / (layers_s + head_s), 1),
        "W2": round(measured["read_bandwidth_gb_per_s"] * 1e9 / weight_bytes, 1),
    }
