"""The sampler in both of its forms: with the kernel for a CPU, and in parts as on other devices."""

from typing import Any

import pytest

from jax_engine.operations import numba, xla
from jax_engine.sampling.sampler import SamplerOutput, sample

each_form = pytest.mark.parametrize("form", ["kernel", "parts"])


def sample_by(form: str, *arguments: Any, **named: Any) -> SamplerOutput:
    """`sample` in one form, and in no other."""
    ours = numba if form == "kernel" else xla
    return sample(*arguments, **named, draw=ours.draw, logsumexp=ours.logsumexp)
