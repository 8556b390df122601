"""The table of planted bugs."""

from tests.mutation import attention, blocks, sampling, scheduling
from tests.mutation.planting import Mutant

MUTANTS: list[Mutant] = [
    *blocks.MUTANTS,
    *scheduling.MUTANTS,
    *attention.MUTANTS,
    *sampling.MUTANTS,
]
