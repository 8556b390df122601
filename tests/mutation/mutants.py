"""The table of planted bugs."""

from tests.mutation import (
    attention,
    blocks,
    cpu_kernels,
    mosaic,
    sampling,
    scheduling,
    text,
    triton,
    xla_kernels,
)
from tests.mutation.planting import Mutant

MUTANTS: list[Mutant] = [
    *blocks.MUTANTS,
    *scheduling.MUTANTS,
    *attention.MUTANTS,
    *cpu_kernels.MUTANTS,
    *mosaic.MUTANTS,
    *triton.MUTANTS,
    *xla_kernels.MUTANTS,
    *sampling.MUTANTS,
    *text.MUTANTS,
]
