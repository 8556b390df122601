"""The table of planted bugs."""

from tests.mutation import (
    attention,
    blocks,
    cpu_kernels,
    engine,
    layers,
    models,
    oracle,
    sampling,
    scheduling,
    simulation,
    text,
    worker,
)
from tests.mutation.planting import Mutant

MUTANTS: list[Mutant] = [
    *attention.MUTANTS,
    *blocks.MUTANTS,
    *cpu_kernels.MUTANTS,
    *engine.MUTANTS,
    *layers.MUTANTS,
    *models.MUTANTS,
    *oracle.MUTANTS,
    *sampling.MUTANTS,
    *scheduling.MUTANTS,
    *simulation.MUTANTS,
    *text.MUTANTS,
    *worker.MUTANTS,
]
