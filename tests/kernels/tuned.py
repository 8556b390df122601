"""A GPU backend with other tiles, stages and splits than its tuning table has for a CPU.

Small ones bring borders into small steps: an interpreter takes seconds for a large one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from paged_conformance.kernel.cases import Case
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.sizes import Sizes
from pallas_kernels import tuning
from pallas_kernels.backends import implementation
from pallas_kernels.device import target_device
from pallas_kernels.mosaic import decode
from tests.kernels.kernel import Ours

NAMES = {type_: name for name, type_ in tuning.KERNELS.items()}


class Tuned(Ours):
    """One backend with these configurations for every shape."""

    def __init__(self, sizes: Sizes, *configs: tuning.Config):
        self.configs = configs
        super().__init__(NAMES[type(configs[0])].partition("_")[0], sizes)

    def __call__(self, case: Case, options: dict[str, Any]) -> Result:
        with self.in_force(case):
            return super().__call__(case, options)

    @contextmanager
    def in_force(self, case: Case) -> Iterator[None]:
        """While a function is traced for such a case; splits are worth it from 64 tokens on."""
        block_size, dim = case.kv_cache.shape[4:]
        shape = (dim, block_size, case.kv_cache.dtype.name)
        device = target_device().device_kind
        table = {(device, NAMES[type(config)], *shape): config for config in self.configs}
        # What was traced with another configuration looks the same to JAX.
        attend = implementation(self.name).attend
        attend.clear_cache()
        with tuning.instead_of_the_file(table), patch.object(decode, "SMALLEST_PART", 64):
            yield
        attend.clear_cache()
