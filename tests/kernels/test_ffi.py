"""What handlers answer when XLA asks which version of its interface they speak."""

import numpy as np
import pytest

from cpu_kernels.attention.attention_kernel import attend as handler
from cpu_kernels.calls.frame import API, API_VERSION, EXTENSION, METADATA, STAGE

FRAME_WORDS = 22
CALLED, ANSWER = 2, 3  # XLA_FFI_ExecutionStage_INITIALIZE; the version's word in XLA_FFI_Metadata


@pytest.mark.parametrize("minor", [4, 5, 9])
@pytest.mark.parametrize("major", [0, 1])
def test_the_version_is_that_of_the_xla_that_asks(major: int, minor: int) -> None:
    """jaxlib 0.11.2 has 0.4 and 0.12 has 0.5: each refuses what is newer. Another major version
    may lay its structs out differently: that one must be told ours, and refuse it."""
    api, metadata = np.zeros(16, np.int64), np.zeros(8, np.int64)
    api[API_VERSION] = major | minor << 32
    extension = np.array([32, METADATA, 0, metadata.ctypes.data])
    frame = np.zeros(FRAME_WORDS, np.int64)
    frame[EXTENSION], frame[API] = extension.ctypes.data, api.ctypes.data
    assert handler.ctypes(frame.ctypes.data) == 0
    assert metadata.tolist() == [0] * ANSWER + [minor << 32] + [0] * (7 - ANSWER)


def test_other_stages_than_execution_do_nothing() -> None:
    """The frame names no arrays: reading one would end the process."""
    frame = np.zeros(FRAME_WORDS, np.int64)
    frame[STAGE] = CALLED
    assert handler.ctypes(frame.ctypes.data) == 0
