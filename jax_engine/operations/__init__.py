"""One table of operations: what computes each of them on this device.

    table.py          the table: norms, softmax, draw and zeros, chosen by device
    xla.py            operations that XLA compiles for every device
    row_sums.py       the sums in them, which on a CPU have the same bits for any number of rows
    whole_vectors.py  exp and its like, of which the same is true
    numba.py          kernels for a CPU, from `cpu_kernels`
    mosaic.py         kernels for a GPU, from `pallas_kernels`
    invariant.py      those of a GPU that add in one order for any number of rows
    formats.py        the formats in which weights are held, with which they are multiplied
    report.py         what the choices are, for people
    device.py         what else differs between devices: memory, dtypes, options of XLA

Nothing else in `jax_engine` asks which device this is, or imports `cpu_kernels`, but for the weight
format of these kernels (tests/meta/test_devices.py). Attention and the KV write are public
functions of `pallas_kernels`, which choose their backend by the same questions; a step's metadata
carries the choice.
"""

from jax_engine.operations.device import (
    Device,
    exact_products,
    lacks_invariance,
    memory_bytes,
    this_device,
)
from jax_engine.operations.formats import coded_format, formats_for, w8a8_format
from jax_engine.operations.table import Operations, decodes_are_ragged, device_operations

__all__ = [
    "Device",
    "Operations",
    "coded_format",
    "decodes_are_ragged",
    "device_operations",
    "exact_products",
    "formats_for",
    "lacks_invariance",
    "memory_bytes",
    "this_device",
    "w8a8_format",
]
