"""Anybody's paged attention, as the property suite calls it."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

import pallas_kernels
from pallas_kernels.backends import BACKENDS, choose_backend, choose_for_call
from pallas_kernels.call import Call, Options
from pallas_kernels.device import interpreting
from tests.kernels.cases import Case, Sizes
from tests.kernels.expected import Result


class Kernel(Protocol):
    """An adapter: write one for a paged attention with another signature than ours.

    Attributes:
        name: stands in the names of the tests.
        sizes: how large the steps are that it is tried on.
    """

    name: str
    sizes: Sizes

    def missing(self, case: Case, options: dict[str, Any]) -> str | None:
        """What it lacks for such a call, in words, or None. Tests of that are skipped."""

    def __call__(self, case: Case, options: dict[str, Any]) -> Result:
        """Its result for a case, in float32, and the log-sum-exp if `return_lse` is asked for."""


class Function:
    """A function with the signature of `pallas_kernels.paged_attention`.

    It lacks the options that its signature lacks, and caches without values.
    """

    values_in_keys = False  # whether it takes a cache [L, 1, N, K, B, D]

    def __init__(self, name: str, function: Callable[..., Any], sizes: Sizes | None = None):
        self.name, self.function, self.sizes = name, function, sizes or Sizes()
        static = ("scale", "window", "soft_cap", "return_lse", "decode_only")
        self._compiled = jax.jit(self.attend, static_argnames=static)

    def missing(self, case: Case, options: dict[str, Any]) -> str | None:
        parameters = inspect.signature(self.function).parameters
        asked = [*options, *([] if case.kv_scales is None else ["kv_scales"])]
        lacking = [name for name in asked if name not in parameters]
        if case.kv_cache.shape[1] == 1 and not self.values_in_keys:
            return "caches whose values are the keys"
        return f"the argument {lacking[0]}" if lacking else None

    def attend(self, *arrays: jax.Array, decode_only: bool, **options: Any) -> Any:
        del decode_only
        return self.function(*arrays, **options)

    def __call__(self, case: Case, options: dict[str, Any]) -> Result:
        arrays = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
        if case.kv_scales is not None:
            options = options | {"kv_scales": case.kv_scales}
        # The layer is traced, as in a scan over layers.
        found = self._compiled(
            *map(jnp.asarray, arrays),
            layer=jnp.int32(case.layer),
            scale=case.scale,
            decode_only=case.decode_only,
            **options,
        )
        out, lse = found if options.get("return_lse") else (found, None)
        assert out.dtype == case.q.dtype
        return np.asarray(out.astype(jnp.float32)), None if lse is None else np.asarray(lse)


class Ours(Function):
    """One backend of this package."""

    values_in_keys = True

    def __init__(self, backend: str, sizes: Sizes):
        super().__init__(backend, pallas_kernels.paged_attention, sizes)

    def missing(self, case: Case, options: dict[str, Any]) -> str | None:
        arrays = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (*arrays, np.zeros((), np.int32))]
        per_head = (options.get("alibi_slopes"), options.get("sinks"), case.kv_scales)
        static = {name: options[name] for name in Options._fields if name in options}
        try:
            choose_for_call(self.name, Call(*shapes, *per_head), Options(case.scale, **static))
        except ValueError as error:
            return str(error)
        return None

    def attend(self, *arrays: jax.Array, decode_only: bool, **options: Any) -> Any:
        q, _, *batch = arrays
        metadata = pallas_kernels.make_metadata(
            *batch, q.shape[0], decode_only=decode_only, backend=self.name
        )
        return super().attend(
            *arrays, decode_only=decode_only, backend=self.name, metadata=metadata, **options
        )


# What is compiled can be tried on shapes as they are in use; an interpreter takes up to seconds.
# Few examples, full steps all of them: at these sizes the oracle takes a second for each.
IN_USE = Sizes(
    tokens=512,
    seqs=16,
    context=2000,
    tile=64,
    geometries=((16, 2, 4, 128), (64, 4, 1, 64)),
    dtype="bfloat16",
    examples=6,
)
INTERPRETED = {
    "triton": Sizes(
        tokens=80,
        seqs=5,
        context=160,
        long_context=1100,
        tile=17,
        step=32,
        geometries=((16, 2, 2, 64),),
        layers=2,
        examples=8,
    ),
    "mosaic": Sizes(
        tokens=24,
        seqs=3,
        context=150,
        long_context=700,
        tile=16,
        step=64,
        geometries=((16, 2, 2, 64),),
        layers=2,
        dtype="bfloat16",
        examples=1,
    ),
}

# For the mutation check, whose profile asks for many examples.
xla = Ours("xla", Sizes(examples=50))
numba = Ours("numba", Sizes(examples=50))


def ours() -> list[Kernel]:
    """Every backend of this package that runs here, those of a GPU interpreted if need be."""
    found: list[Kernel] = []
    for name in BACKENDS:
        try:
            choose_backend(name)
        except ValueError:
            continue
        sizes = INTERPRETED.get(name, Sizes()) if interpreting() else IN_USE
        found.append(Ours(name, sizes))
    return found


def load(path: str) -> Kernel:
    """The kernel at `some.module:name`: an adapter, or a function with our signature."""
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name)
    return found if hasattr(found, "missing") else Function(name, found)
