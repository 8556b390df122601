"""The sampler in both of its forms: with the kernel for a CPU, and in parts as on other devices."""

from typing import Any
from unittest import mock

import pytest

from cpu_kernels.sampling import draw as on_cpu
from jax_engine.sampling import draw
from jax_engine.sampling.sampler import SamplerOutput, sample

each_form = pytest.mark.parametrize("form", ["kernel", "parts"])


def sample_by(form: str, *arguments: Any, **named: Any) -> SamplerOutput:
    """`sample` in one form, and in no other."""
    with (
        mock.patch.object(draw, "on_numba", lambda dtype: form == "kernel"),
        mock.patch.object(on_cpu, "draw", wraps=on_cpu.draw) as kernel,
    ):
        output = sample(*arguments, **named)
    assert kernel.called == (form == "kernel")
    return output
