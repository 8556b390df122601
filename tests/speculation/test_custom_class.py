"""A class of the user's is asked as vLLM asks it, and is named as there."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine.errors import ConfigError
from jax_engine.speculation.drafter import CustomDrafter, DraftRequest

CONFIG = SimpleNamespace(name="vllm_config")


class Noting:
    """Notes what it is asked, and answers `answer`."""

    answer: Any = None

    def __init__(self, vllm_config: Any) -> None:
        assert vllm_config is CONFIG
        self.asked: list[Any] = []

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        slot_mappings: Any = None,
    ) -> Any:
        assert num_tokens_no_spec.dtype == token_ids_cpu.dtype == np.int32
        assert slot_mappings is None
        LAST[:] = [sampled_token_ids, num_tokens_no_spec.tolist(), token_ids_cpu.tolist()]
        return [[1]] * len(sampled_token_ids) if self.answer is None else self.answer


LAST: list[Any] = []


class NoMethod:
    def __init__(self, vllm_config: Any) -> None:
        pass


class NoFunction(NoMethod):
    propose = 3


def answering(answer: Any) -> CustomDrafter:
    return CustomDrafter(type("Answering", (Noting,), {"answer": answer}), CONFIG)


TWO = [DraftRequest(3, [5, 6, 7], 2, 4), DraftRequest(4, [8, 9, 1, 2], 1, 4)]


def test_it_gets_new_tokens_lengths_and_padded_rows() -> None:
    drafter = CustomDrafter(Noting, CONFIG)
    first, other = [5, 6, 7], [8, 9, 1, 2]
    both = [DraftRequest(3, first, 2, 4), DraftRequest(4, other, 1, 4)]
    assert drafter.propose(both) == [[1], [1]]
    assert LAST == [[[7], [9, 1, 2]], [3, 4], [[5, 6, 7, 0], [8, 9, 1, 2]]]
    first += [10, 11, 12]
    assert drafter.propose(both[:1]) == [[1]]
    assert LAST == [[[10, 11, 12]], [6], [[5, 6, 7, 10, 11, 12]]]
    other += [13]
    first += [14]
    drafter.propose(both[::-1])
    padded = [8, 9, 1, 2, 13, 0, 0]
    assert LAST[:2] == [[[13], [14]], [5, 7]]
    assert LAST[2] == [padded, [5, 6, 7, 10, 11, 12, 14]]


def test_a_forgotten_sequence_is_new_again() -> None:
    drafter = CustomDrafter(Noting, CONFIG)
    drafter.propose(TWO)
    drafter.forget({3, 99})
    drafter.propose([DraftRequest(3, [5, 6, 7], 2, 4), DraftRequest(4, [8, 9, 1, 2, 3], 1, 4)])
    assert LAST[0] == [[7], [3]]


def test_new_tokens_count_from_when_it_was_asked_even_if_it_failed() -> None:
    drafter = answering([])
    with pytest.raises(ValueError):
        drafter.propose(TWO)
    with pytest.raises(ValueError):
        drafter.propose([DraftRequest(3, [5, 6, 7, 8], 2, 4)])
    assert LAST[0] == [[8]]


@pytest.mark.parametrize(
    "answer, guesses",
    [
        ([[3, 4], [5]], [[3, 4], [5]]),
        ([[], []], [[], []]),
        ([None, [5]], [[], [5]]),
        ([(3,), np.array([4, 5])], [[3], [4, 5]]),
        (np.array([[3, 4], [5, 6]]), [[3, 4], [5, 6]]),
        ([[np.int64(3), np.int32(-1)], None], [[3, -1], []]),
    ],
)
def test_answers_of_several_forms(answer: Any, guesses: list[list[int]]) -> None:
    found = answering(answer).propose(TWO)
    assert found == guesses
    assert all(type(token) is int for one in found for token in one)


@pytest.mark.parametrize("answer", [[], [[1]], [[1], [2], [3]], np.zeros((1, 2))])
def test_a_wrong_number_of_lists(answer: Any) -> None:
    with pytest.raises(ValueError, match=r"propose must return a list of guesses for each of 2"):
        answering(answer).propose(TWO)


def test_no_answer() -> None:
    class Silent(NoMethod):
        def propose(self, *given: Any) -> None:
            return None

    with pytest.raises(ValueError, match=r"for each of 2 sequences, got None"):
        CustomDrafter(Silent, CONFIG).propose(TWO)


@pytest.mark.parametrize("separator", [".", ":"])
def test_a_class_by_its_name(separator: str) -> None:
    drafter = CustomDrafter(f"{__name__}{separator}Noting", CONFIG)
    assert drafter.propose(TWO[:1]) == [[1]]


@pytest.mark.parametrize(
    "model, why",
    [
        (f"{__name__}.Missing", "Missing"),
        ("tests.no_such_module.Noting", "no_such_module"),
        ("Noting", "got 'Noting'"),
        ("", "got ''"),
        (".Noting", "got '.Noting'"),
        ("..Noting", r"got '\.\.Noting'"),
        ("tests:", "got 'tests:'"),
        (f"{__name__}.LAST", "or its name"),
        (3, "got 3"),
        (Noting(CONFIG), "or its name"),
        (NoMethod, "with a method propose"),
        (NoFunction, "with a method propose"),
        (f"{__name__}.NoMethod", "with a method propose"),
    ],
)
def test_no_class_or_no_method(model: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^speculative_config: model must be a class.*{why}"):
        CustomDrafter(model, CONFIG)
