"""Functions with the signature of `pallas_kernels.paged_attention`: NumPy's and JAX's."""

import functools
import inspect
import sys
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from paged_conformance.kernel.cases import Case, Options
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.sizes import Sizes
from paged_conformance.kernel.words import FREEDOMS


class Function:
    """A NumPy function with the signature of `pallas_kernels.paged_attention`.

    It lacks the options that its signature lacks, and caches without values.
    """

    values_in_keys = False  # whether it takes a cache [L, 1, N, K, B, D]

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        sizes: Sizes | None = None,
        capabilities: Collection[str] = tuple(FREEDOMS),
    ):
        self.name, self.function, self.sizes = name, function, sizes or Sizes()
        self.capabilities = frozenset(capabilities)

    def missing(self, case: Case, options: Options) -> str | None:
        parameters = inspect.signature(self.function).parameters
        asked = [*options, *([] if case.kv_scales is None else ["kv_scales"])]
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            asked = []
        lacking = [name for name in asked if name not in parameters]
        if case.kv_cache.shape[1] == 1 and not self.values_in_keys:
            return "caches whose values are the keys"
        return f"the argument {lacking[0]}" if lacking else None

    def __call__(self, case: Case, options: Options) -> Result:
        arrays = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
        if case.kv_scales is not None:
            options = options | {"kv_scales": case.kv_scales}
        found = self.function(*arrays, layer=case.layer, scale=case.scale, **options)
        out, lse = found if options.get("return_lse") else (found, None)
        return np.asarray(out, np.float32), None if lse is None else np.asarray(lse, np.float32)


class JaxFunction(Function):
    """The same with JAX arrays, compiled by `jax.jit`. The layer is traced, as in a scan."""

    def __init__(self, name: str, function: Callable[..., Any], sizes: Sizes | None = None):
        import jax

        super().__init__(name, function, sizes)
        static = ("scale", "window", "soft_cap", "return_lse", "decode_only")
        self._compiled = jax.jit(self.attend, static_argnames=static)

    def attend(self, *arrays: Any, decode_only: bool, **options: Any) -> Any:
        """What is compiled; a subclass may call another function with the same arguments."""
        del decode_only
        return self.function(*arrays, **options)

    def __call__(self, case: Case, options: Options) -> Result:
        import jax.numpy as jnp

        arrays = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
        if case.kv_scales is not None:
            options = options | {"kv_scales": case.kv_scales}
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


def uses_jax(function: Callable[..., Any]) -> bool:
    """Whether the function's module has something of JAX's under a name of its own."""
    if "jax" not in sys.modules:
        return False
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    if not hasattr(function, "__globals__"):
        function = type(function).__call__
    namespace = getattr(function, "__globals__", {})
    owners = (
        one.__name__ if inspect.ismodule(one) else getattr(one, "__module__", None)
        for one in namespace.values()
    )
    return any(str(owner).partition(".")[0] == "jax" for owner in owners)
