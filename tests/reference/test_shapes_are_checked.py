"""The import hook of conftest.py works: a wrong dtype fails at the call."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from reference.attention import softmax_attention
from tests.reference.conftest import ORACLE_IS_CHECKED


@pytest.mark.skipif(not ORACLE_IS_CHECKED, reason="other tests have imported the oracle before")
def test_wrong_dtype_in_the_oracle() -> None:
    with pytest.raises(TypeCheckError):
        softmax_attention(np.zeros(3, np.int64), np.zeros((3, 4)))
