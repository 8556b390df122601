"""What the bits of cached keys and values depend on beside their tokens, as 32 bytes.

Two engines with one fingerprint may use each other's KV blocks. It is of the weights as they are
computed with, and not of their files: those may be changed in place, or made to another seed. A
few reads of the memory that they take cost less than the blocks of one prompt.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_engine.models.model_config import ModelConfig
from jax_engine.worker.compilation_cache import machine_key

ROOT = Path(__file__).parents[2]
SOURCES = (
    "cpu_kernels", "pallas_kernels", "jax_engine/layers", "jax_engine/lora", "jax_engine/models",
    "jax_engine/operations", "jax_engine/parallel", "jax_engine/weights", "jax_engine/worker",
)  # fmt: skip
PIECE_BYTES = 32 << 20


def fingerprint(config: ModelConfig, weights: Sequence[Any], settings: Iterable[object]) -> bytes:
    """The fingerprint of a model's cache.

    Args:
        weights: All arrays that a step computes with.
        settings: What else decides the bits, with a `repr` that is the same in each process.
    """
    device = jax.devices()[0]
    others = (
        repr(config), repr(tuple(settings)), device.platform, device.device_kind, machine_key(),
        version("jax"), version("jaxlib"), version("numba"), os.environ.get("XLA_FLAGS"),
        str(jax.config.jax_default_matmul_precision), _sources(),
    )  # fmt: skip
    whole = hashlib.sha256(repr(others).encode())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for array in weights:
            host = np.asarray(array)
            whole.update(repr((host.dtype.name, host.shape)).encode())
            for digest in pool.map(_digest, _pieces(host)):
                whole.update(digest)
    return whole.digest()


def _pieces(array: np.ndarray) -> list[np.ndarray]:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return [flat[first : first + PIECE_BYTES] for first in range(0, len(flat), PIECE_BYTES)]


def _digest(piece: np.ndarray) -> bytes:
    return hashlib.sha256(piece).digest()


@cache
def _sources() -> str:
    """The digest of all code that computes: a new version may add up in another order."""
    whole = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            whole.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()
