"""The order of the stop conditions: end of sequence, stop tokens, length."""

import pytest

from jax_engine.core.sequence import StopRule
from tests.core.build import make_params

EOS, STOP = 2, 3


@pytest.mark.parametrize(
    ("output", "params", "expected"),
    [
        ([9], {}, None),
        ([9, 9, 9], {"max_tokens": 3}, ("length", None)),
        ([9, 9, EOS], {"max_tokens": 3}, ("stop", None)),
        ([9, 9, EOS], {"max_tokens": 3, "ignore_eos": True}, ("length", None)),
        ([9, 9, STOP], {"max_tokens": 3, "stop_token_ids": [STOP]}, ("stop", STOP)),
        ([9, 9, EOS], {"max_tokens": 3, "min_tokens": 4}, ("length", None)),
        ([9] * 6 + [EOS], {"max_tokens": None}, ("stop", None)),
        ([9] * 7, {"max_tokens": None}, ("length", None)),
        ([9] * 7, {"max_tokens": 100, "min_tokens": 50}, ("length", None)),
        ([EOS], {}, ("stop", None)),
        ([EOS], {"ignore_eos": True}, None),
        ([EOS], {"ignore_eos": True, "stop_token_ids": [EOS]}, ("stop", EOS)),
        ([EOS], {"stop_token_ids": [EOS]}, ("stop", None)),
        ([STOP], {"stop_token_ids": [STOP]}, ("stop", STOP)),
        ([STOP], {"stop_token_ids": [STOP], "min_tokens": 2}, None),
        ([EOS], {"min_tokens": 2}, None),
        ([EOS, EOS], {"min_tokens": 2}, ("stop", None)),
        ([STOP], {"stop_token_ids": None}, None),
    ],
)
def test_stop(output: list[int], params: dict[str, object], expected: object) -> None:
    rule = StopRule.for_request(make_params(**params), {EOS}, prompt_len=3, max_model_len=10)
    assert rule.check(output[-1], 3 + len(output)) == expected
