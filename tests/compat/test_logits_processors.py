"""vLLM's logits processors, each request in a batch of one."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine import InvalidRequestError, SamplingParams
from jax_engine.engine import vllm_parts
from jax_engine.engine.vllm_parts import (
    AdapterLogitsProcessor,
    BatchUpdate,
    LogitsProcessor,
    MoveDirectionality,
    process_dict_updates,
    request_processor,
)


class Ban(LogitsProcessor):
    """Forbids the token of the last position, and counts how often it was told of a request."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        assert device.type == "cpu" and not is_pin_memory
        self.outputs: dict[int, list[int]] = {}
        self.num_updates = 0

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        if sampling_params.top_k == 7:
            raise ValueError("top_k must not be 7")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.num_updates += batch_update is not None
        assert batch_update is None or batch_update.batch_size == 1
        process_dict_updates(self.outputs, batch_update, lambda params, prompt, output: output)

    def apply(self, logits: Any) -> Any:
        for row, output in self.outputs.items():
            for token in output:
                logits[row, token] = -float("inf")
        return logits


class OnlyFirstOfPrompt(AdapterLogitsProcessor):
    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Any:
        if params.top_k == 1:
            return None

        def only(prompt: list[int], output: list[int], logits: Any) -> Any:
            kept = float(logits[prompt[0]])
            logits[:] = -float("inf")
            logits[prompt[0]] = kept
            return logits

        return only


def test_a_processor_sees_the_output_grow() -> None:
    function = request_processor([Ban], SamplingParams(), None)
    logits = np.arange(5, dtype=np.float32)
    assert np.isfinite(function([9], [], logits)).all()
    assert np.flatnonzero(np.isinf(function([9], [4], logits))).tolist() == [4]
    assert np.flatnonzero(np.isinf(function([9], [4, 1], logits))).tolist() == [1, 4]
    assert function._processors[0].num_updates == 1  # type: ignore[attr-defined]
    assert np.flatnonzero(np.isinf(function([9], [2, 3], logits))).tolist() == [2, 3]
    assert logits.tolist() == [0, 1, 2, 3, 4]


def test_functions_of_single_requests() -> None:
    function = request_processor([OnlyFirstOfPrompt], SamplingParams(), None)
    edited = function([2, 1], [], np.arange(4, dtype=np.float32))
    assert edited.tolist() == [-np.inf, -np.inf, 2, -np.inf]
    without = request_processor([OnlyFirstOfPrompt], SamplingParams(top_k=1), None)
    assert without([2, 1], [], np.arange(4, dtype=np.float32)).tolist() == [0, 1, 2, 3]


def test_params_that_a_processor_refuses() -> None:
    with pytest.raises(InvalidRequestError, match="must not be 7"):
        request_processor([Ban], SamplingParams(top_k=7), None)


def test_rows_are_removed_added_and_moved() -> None:
    one = SamplingParams()
    states = {0: "a", 1: "b", 2: "c"}
    moved = [(1, 0, MoveDirectionality.SWAP), (2, 3, MoveDirectionality.UNIDIRECTIONAL)]
    update = BatchUpdate(4, removed=[0], added=[(0, one, None, [])], moved=moved)
    assert process_dict_updates(states, update, lambda params, prompt, output: "new")
    assert states == {0: "b", 1: "new", 3: "c"}
    assert not process_dict_updates(states, None, lambda params, prompt, output: "x")
    gone = BatchUpdate(1, removed=[], added=[(0, one, None, [])], moved=[])
    assert process_dict_updates(states, gone, lambda params, prompt, output: None)
    assert states == {1: "new", 3: "c"}


def test_rows_that_only_go_or_are_overwritten() -> None:
    """A row that moves where another is takes its place; one that is swapped with none goes."""
    states = {0: "a", 1: "b", 2: "c", 3: "d"}
    moved = [(2, 1, MoveDirectionality.UNIDIRECTIONAL), (3, 5, MoveDirectionality.SWAP)]
    update = BatchUpdate(2, removed=[0], added=[], moved=moved)
    assert process_dict_updates(states, update, lambda params, prompt, output: "new")
    assert states == {1: "c", 5: "d"}


def test_a_row_without_a_state_leaves_none_where_it_moves() -> None:
    states = {1: "b"}
    update = BatchUpdate(3, [], [], moved=[(0, 1, MoveDirectionality.UNIDIRECTIONAL)])
    assert process_dict_updates(states, update, lambda params, prompt, output: "new")
    assert states == {}


def test_logits_are_torch_s_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Seeing(Ban):
        def apply(self, logits: Any) -> Any:
            made.append(logits)
            return super().apply(logits.values)

    torch = SimpleNamespace(
        tensor=lambda values: SimpleNamespace(values=values),
        device=lambda name: SimpleNamespace(type=name),
    )
    monkeypatch.setattr(vllm_parts, "import_module", {"torch": torch}.get)
    vllm_parts._torch.cache_clear()
    try:
        function = request_processor([Seeing], SamplingParams(), None)
        edited = function([9], [1], np.zeros(3, np.float32))
    finally:
        monkeypatch.undo()
        vllm_parts._torch.cache_clear()
    assert edited.tolist() == [0, -np.inf, 0] and len(made) == 1
