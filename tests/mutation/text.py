"""Bugs in how text ends."""

from tests.mutation.planting import Mutant, plant

STOP_TESTS = ("tests/tokenization/test_stop.py",)
TEXT_TESTS = ("tests/engine/test_llm_text.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/tokenization/stop.py",
        STOP_TESTS,
        ("if found and may_end:", "if found:", "stop strings do not wait for min_tokens"),
        (
            "max(0, old + 1 - len(one))",
            "0",
            "a stop string that was complete too early counts when it is looked at again",
        ),
        (
            "max(0, old + 1 - len(one))",
            "old",
            "a stop string that begins in what was held back is not found",
        ),
    ),
    *plant(
        "jax_engine/engine/sequence_text.py",
        TEXT_TESTS,
        (
            "self._num_tokens > self._min_tokens",
            "self._num_tokens >= self._min_tokens",
            "the last of min_tokens may complete a stop string",
        ),
    ),
    *plant(
        "jax_engine/engine/request_state.py",
        TEXT_TESTS,
        (" or not self.params.detokenize:", ":", "words of tokens without detokenization"),
    ),
]
