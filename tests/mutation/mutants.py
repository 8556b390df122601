"""The table of planted bugs."""

from tests.mutation import (
    attention,
    blocks,
    cpu_kernels,
    engine,
    layers,
    models,
    mosaic,
    oracle,
    outputs,
    parameters,
    sampling,
    scheduling,
    simulation,
    text,
    triton,
    weights,
    worker,
    xla_kernels,
)
from tests.mutation.planting import Mutant

MUTANTS: list[Mutant] = [
    *attention.MUTANTS,
    *blocks.MUTANTS,
    *cpu_kernels.MUTANTS,
    *engine.MUTANTS,
    *layers.MUTANTS,
    *models.MUTANTS,
    *mosaic.MUTANTS,
    *oracle.MUTANTS,
    *outputs.MUTANTS,
    *parameters.MUTANTS,
    *sampling.MUTANTS,
    *scheduling.MUTANTS,
    *simulation.MUTANTS,
    *text.MUTANTS,
    *triton.MUTANTS,
    *weights.MUTANTS,
    *worker.MUTANTS,
    *xla_kernels.MUTANTS,
]
