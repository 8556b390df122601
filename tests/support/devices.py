"""A mark that asks which device there is when a test begins, not when its file is imported.

A process that has asked for its device cannot be forked any more: the mutation check forks.
"""

import pytest

_ASKED = "not __import__('importlib').import_module('pallas_kernels.backends').runs_cpu_kernels()"


def for_cpu_kernels(reason: str) -> pytest.MarkDecorator:
    """Skips a test where the device does not run the kernels of `cpu_kernels`."""
    return pytest.mark.skipif(_ASKED, reason=reason)
