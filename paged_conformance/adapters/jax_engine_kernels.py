"""The backends of `pallas_kernels`, and of `cpu_kernels` behind it, at sizes that suit each.

paged-conformance kernel paged_conformance.adapters.jax_engine_kernels:xla
"""

from typing import Any

import jax
import numpy as np

import pallas_kernels
from paged_conformance.kernel.cases import Case
from paged_conformance.kernel.cases import Options as Asked
from paged_conformance.kernel.functions import JaxFunction
from paged_conformance.kernel.sizes import Sizes
from paged_conformance.kernel.target import Kernel
from pallas_kernels.backends import BACKENDS, choose_backend, choose_for_call
from pallas_kernels.call import Call, Options
from pallas_kernels.device import interpreting


class Ours(JaxFunction):
    """One backend of this package."""

    values_in_keys = True

    def __init__(self, backend: str, sizes: Sizes):
        super().__init__(backend, pallas_kernels.paged_attention, sizes)

    def missing(self, case: Case, options: Asked) -> str | None:
        arrays = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
        struct: Any = jax.ShapeDtypeStruct  # has no annotations
        shapes = [struct(one.shape, one.dtype) for one in (*arrays, np.zeros((), np.int32))]
        per_head = [options.get("alibi_slopes"), options.get("sinks"), case.kv_scales]
        static = {name: options[name] for name in Options._fields if name in options}
        try:
            choose_for_call(self.name, Call(*[*shapes, *per_head]), Options(case.scale, **static))
        except ValueError as error:
            return str(error)
        return None

    def attend(self, *arrays: Any, decode_only: bool, **options: Any) -> Any:
        q, _, tables, lens, starts = arrays
        metadata = pallas_kernels.make_metadata(
            tables, lens, starts, q.shape[0], decode_only=decode_only, backend=self.name
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
