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
    sampling,
    scheduling,
    simulation,
    text,
    triton,
    worker,
    xla_kernels,
)
from tests.mutation.planting import Mutant

_LISTED: list[Mutant] = [
    *attention.MUTANTS,
    *blocks.MUTANTS,
    *cpu_kernels.MUTANTS,
    *engine.MUTANTS,
    *layers.MUTANTS,
    *models.MUTANTS,
    *mosaic.MUTANTS,
    *oracle.MUTANTS,
    *sampling.MUTANTS,
    *scheduling.MUTANTS,
    *simulation.MUTANTS,
    *text.MUTANTS,
    *triton.MUTANTS,
    *worker.MUTANTS,
    *xla_kernels.MUTANTS,
]
# Two subjects may have thought of the same bug: the first one's tests must notice it.
_FIRST: dict[tuple[str, ...], Mutant] = {}
for _mutant in _LISTED:
    _change = (" ".join(code.split()) for code in (_mutant.old, _mutant.new))
    _FIRST.setdefault((_mutant.file, *_change), _mutant)
MUTANTS = list(_FIRST.values())
