"""One table of operations: what computes each of them on this device.

    table.py       the table, chosen by device: norms, softmax, draw and zeros, and the formats in
                   which weights are held, with which they are multiplied
    xla.py         operations that XLA compiles for every device
    equal_bits.py  sums, and exp and its like, which on a CPU have the same bits for any number of
                   rows
    numba.py       kernels for a CPU, from `cpu_kernels`
    invariant.py   those of a GPU that add in one order for any number of rows
    report.py      what the choices are, for people
    device.py      what else differs between devices: memory, dtypes, options of XLA

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
from jax_engine.operations.table import (
    Operations,
    coded_format,
    decodes_are_ragged,
    device_operations,
    formats_for,
    w8a8_format,
)

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
