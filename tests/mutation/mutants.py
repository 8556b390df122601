"""The table of planted bugs."""

from tests.mutation import (
    attention,
    blocks,
    cpu_kernels,
    engine,
    oracle,
    sampling,
    scheduling,
    text,
)
from tests.mutation.planting import Mutant

MUTANTS: list[Mutant] = [
    *blocks.MUTANTS,
    *scheduling.MUTANTS,
    *attention.MUTANTS,
    *cpu_kernels.MUTANTS,
    *sampling.MUTANTS,
    *text.MUTANTS,
    *oracle.MUTANTS,
    *engine.MUTANTS,
]
