"""JAX's own paged attention for GPUs, which is deprecated: decodes over the pages of one layer.

    paged-conformance kernel paged_conformance.adapters.jax_pallas_kernel:kernel

It takes no scale, so queries are scaled before, and pages with the heads first, `[K, N, B, D]`.
"""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from paged_conformance.kernel.cases import Case, Options
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.sizes import Sizes

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from jax.experimental.pallas.ops.gpu.paged_attention import paged_attention

# It divides the table into parts of equal power-of-two widths.
SMALLEST_WIDTH = 16


class JaxPallas:
    """Decode steps, one query token a sequence, with a soft cap or without."""

    name = "jax"
    sizes = Sizes(
        seqs=5,
        context=160,
        long_context=1300,
        geometries=((16, 2, 2, 64),),
        layers=2,
        decode_only=True,
        examples=5,
    )

    def missing(self, case: Case, options: Options) -> str | None:
        """Prefills, and all options but one."""
        if not case.decode_only:
            return "steps with several query tokens a sequence"
        if case.kv_scales is not None:
            return "scales by head of an 8-bit cache (it has one a token)"
        lacking = [name for name in options if name != "soft_cap"]
        return f"the option {lacking[0]}" if lacking else None

    def __call__(self, case: Case, options: Options) -> Result:
        arrays = (case.q, case.kv_cache[case.layer], case.block_tables, case.context_lens)
        out = _attend(*map(jnp.asarray, arrays), scale=case.scale, **options)
        return np.asarray(out.astype(jnp.float32)), None


@functools.partial(jax.jit, static_argnames=("scale", "soft_cap"))
def _attend(
    q: jax.Array,
    kv: jax.Array,
    tables: jax.Array,
    lens: jax.Array,
    *,
    scale: float,
    soft_cap: float | None = None,
) -> jax.Array:
    width = max(1 << (tables.shape[1] - 1).bit_length(), SMALLEST_WIDTH)
    pages = kv.swapaxes(1, 2)
    out: jax.Array = paged_attention(
        (q * scale).astype(q.dtype),
        pages[0],
        pages[1],
        jnp.pad(tables, ((0, 0), (0, width - tables.shape[1]))),
        lens,
        attn_logits_soft_cap=soft_cap,
        interpret=jax.default_backend() == "cpu",
    )
    return out


kernel = JaxPallas()
