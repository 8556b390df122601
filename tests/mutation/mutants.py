"""The table of planted bugs."""

from tests.mutation import (
    attention,
    blocks,
    cpu_kernels,
    layers,
    models,
    sampling,
    scheduling,
    simulation,
    text,
    worker,
)
from tests.mutation.planting import Mutant

MUTANTS: list[Mutant] = [
    *blocks.MUTANTS,
    *scheduling.MUTANTS,
    *attention.MUTANTS,
    *cpu_kernels.MUTANTS,
    *sampling.MUTANTS,
    *text.MUTANTS,
    *layers.MUTANTS,
    *models.MUTANTS,
    *worker.MUTANTS,
    *simulation.MUTANTS,
]
