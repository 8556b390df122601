"""`python -m benchmarks.gpu.card`: what this card can do at best, by JAX and by PyTorch.

The products of both are timed in one process, in turn, on the same inputs, so that neither has the
warmer card. PyTorch's reached 798 TFLOP/s where JAX's reached 680 on another card of the same kind:
beside each other the two tell a choice of XLA's from a difference of cards.
"""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.gpu.driver import nvidia_smi
from benchmarks.gpu.said import attempt, put
from benchmarks.gpu.timing import seconds_each
from benchmarks.report import machine, versions

# XLA's choices for a large product: cuBLAS, cuBLAS after a search, XLA's own Triton kernels.
OPTIONS: dict[str, dict[str, Any]] = {
    "cuBLAS": {"xla_gpu_enable_triton_gemm": False},
    "cuBLASLt, autotuned": {
        "xla_gpu_enable_triton_gemm": False,
        "xla_gpu_enable_cublaslt": True,
        "xla_gpu_autotune_level": 4,
    },
    "Triton": {"xla_gpu_enable_triton_gemm": True},
}
TURNS = 5  # of a loop on the device
ROUNDS = 3  # of JAX and PyTorch in turn


def read_bytes_per_s(smoke: bool) -> float:
    """Bytes a second at which the card reads an array much larger than its L2 cache."""
    x = jnp.zeros(2**16 if smoke else 2**29, jnp.int32)

    @jax.jit
    def loop(x: Any) -> Any:
        # Each sum needs the one before, so that none is taken out of the loop.
        return lax.fori_loop(0, TURNS, lambda i, total: total + jnp.sum(x ^ total), jnp.int32(1))

    return x.nbytes / seconds_each(partial(loop, x), TURNS, rounds=5)


def copy_bytes_per_s(smoke: bool) -> float:
    """Bytes read plus bytes written a second by x + 1 on a large array."""
    size = 2**16 if smoke else 2**28
    x = jnp.zeros(size, jnp.float32)

    @jax.jit
    def loop(x: Any) -> Any:
        return lax.fori_loop(0, TURNS, lambda i, y: y + 1, x)

    return 2 * x.nbytes / seconds_each(partial(loop, x), TURNS, rounds=5)


def matrix_flops_per_s(smoke: bool) -> float:
    """Operations a second of a large product of bfloat16 matrices, accumulated in float32."""
    return _products(smoke, {})()


def _products(smoke: bool, options: dict[str, Any]) -> Callable[[], float]:
    """A function that measures the rate of this product; it compiles when it is first called."""
    size = 64 if smoke else 8192
    x, weight = _matrices(size)

    @partial(jax.jit, compiler_options=options)
    def loop(x: Any, weight: Any) -> Any:
        return lax.fori_loop(0, TURNS, lambda i, y: y @ weight, x)

    return lambda: 2 * size**3 / seconds_each(partial(loop, x, weight), TURNS, rounds=5)


def _matrices(size: int) -> tuple[Any, Any]:
    key = jax.random.key(0)
    # Eigenvalues below one, so that the chain of products stays finite.
    weight = (jax.random.normal(key, (size, size)) / (2 * size**0.5)).astype(jnp.bfloat16)
    return jax.random.normal(key, (size, size), jnp.bfloat16), weight


def torch_flops_per_s(torch: Any, size: int = 8192, count: int = 20) -> float:
    """The same chain of products by PyTorch, on the same numbers."""
    x, weight = (torch.from_dlpack(one).clone() for one in _matrices(size))
    for _ in range(4):
        x = x @ weight
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        x = x @ weight
    torch.cuda.synchronize()
    return count * 2 * size**3 / (time.perf_counter() - started)


def measured_rates(smoke: bool) -> dict[str, float]:
    """The rates that bounds are made of."""
    return {
        "read_bytes_per_s": read_bytes_per_s(smoke),
        "copy_bytes_per_s": copy_bytes_per_s(smoke),
        "matrix_flops_per_s": matrix_flops_per_s(smoke),
    }


def rates(given: str, smoke: bool) -> dict[str, float]:
    """Those that an earlier step measured, as JSON; measured here where it says nothing."""
    found: dict[str, float] = json.loads(given or "{}")
    return found if "matrix_flops_per_s" in found else measured_rates(smoke)


def _both(smoke: bool) -> None:
    """JAX's product under each option and PyTorch's, in turn: the median of each, in TFLOP/s."""
    torch: Any = None
    if importlib.util.find_spec("torch") is not None:
        import torch

        if not torch.cuda.is_available():
            torch = None
    measure = {f"JAX, {name}": _products(smoke, options) for name, options in OPTIONS.items()}
    if torch is not None:
        measure["PyTorch"] = partial(torch_flops_per_s, torch)
    found: dict[str, list[float]] = {name: [] for name in measure}
    for _ in range(1 if smoke else ROUNDS):
        for name, rate in measure.items():
            found[name].append(rate())
    tflop = {name: round(median(each) / 1e12, 1) for name, each in found.items()}
    put("peers", "product of 8192^3, TFLOP/s", value=tflop)


def main() -> None:
    """Machine, versions, rates, then the products beside each other."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.card")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--card", default="", help="not read: this step measures it")
    args = parser.parse_args()
    put("machine", value=machine() | {"nvidia_smi": nvidia_smi()})
    put("versions", value=versions())
    attempt("card", lambda: put("card", value=measured_rates(args.smoke)), args.limit)
    attempt("products beside PyTorch's", lambda: _both(args.smoke), args.limit)


if __name__ == "__main__":
    main()
