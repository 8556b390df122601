"""What users of other engines have reported of adapters, and which tests say that it is not so.

Each report names tests; those that fit nowhere else are below.
"""

import ast
from pathlib import Path

import pytest

from jax_engine import LLMEngine, LoRARequest
from jax_engine.config.engine_config import EngineConfig
from tests.lora.test_registry import make, reads, written  # noqa: F401
from tests.meta.trees import ROOT
from tests.support.tiny_llama import byte_llama

SLOTS = "tests/core/test_adapter_slots.py::"
ENGINE = "tests/engine/test_adapters.py::"
HTTP = "tests/serving/test_adapters.py::"
REPORTS: dict[str, tuple[str, ...]] = {
    "a cached prefix is another adapter's, or stale after a reload (vllm#30931, #42125)": (
        SLOTS + "test_no_prefix_is_shared_across_adapters_nor_across_salts_of_one",
        HTTP + "test_a_name_changes_while_its_request_is_computed",
        "tests/serving/fields/test_adapters.py::test_a_name_is_the_version_that_was_loaded",
        "tests/properties/test_adapters.py::test_bits_are_those_of_a_request_alone",
    ),
    "modules that match nothing are dropped, and the base answers (vllm#34186)": (
        "tests/lora/test_peft.py::test_tensors_that_are_refused",
        "tests/lora/test_gguf.py::test_tensors_that_are_refused",
    ),
    "a slot is not zeroed when fewer modules follow (sglang#7426)": (
        "tests/worker/test_adapters.py::test_a_slot_that_is_taken_keeps_nothing",
    ),
    "a smaller rank than max_lora_rank reads garbage (sglang PR#21864)": (
        "tests/worker/test_adapters.py::test_a_slot_that_is_taken_keeps_nothing",
        "tests/worker/test_adapters.py::test_an_adapter_is_the_merged_model",
    ),
    "a loaded adapter changes requests of the base (vllm#42008, sglang#4739)": (
        "tests/worker/test_adapters.py::test_an_adapter_is_the_merged_model",
        "tests/engine/test_real_adapters.py::test_more_adapters_than_slots_change_nothing",
        "tests/properties/test_adapters.py::test_bits_are_those_of_a_request_alone",
    ),
    "an adapter that comes back from the host's cache is another one (vllm PR#20873)": (
        "tests/worker/test_adapters.py::test_evicted_and_loaded_again_is_never_evicted",
        "tests/properties/test_adapters.py::test_a_thousand_adapters_through_eight_slots",
    ),
    "over a quantised base answers degenerate, or x is rounded (vllm#42488, #42007)": (
        "tests/worker/test_adapters.py::test_a_quantised_base_keeps_its_codes",
        "tests/lora/test_peft_parity.py::test_answers_are_those_of_peft",
    ),
    "files are read again at every step with load_inplace (SkyRL#1606)": (
        "tests/lora/test_field_reports.py::test_unchanged_files_are_not_read_again_in_place",
    ),
    "versions are never freed, unloading waits, or comes too early (AReaL#1385, TRL#7017)": (
        ENGINE + "test_a_thousand_adapters_through_eight_slots",
        HTTP + "test_a_name_changes_while_its_request_is_computed",
        ENGINE + "test_a_request_keeps_the_version_with_which_it_was_accepted",
    ),
    'target_modules="all-linear" is read letter by letter (verl#7413)': (
        "tests/lora/test_peft_config.py::test_which_modules_are_selected",
    ),
    "an engine takes hours to start (vllm#16961)": (
        "tests/lora/test_field_reports.py::test_no_more_is_compiled_at_the_start",
    ),
    "embed_tokens and lm_head (vllm#48934)": (
        "tests/worker/test_adapters.py::test_an_embedding_and_a_head_alone",
        "tests/lora/test_peft.py::test_an_embedding_and_a_tied_head",
    ),
}


@pytest.mark.parametrize("report", REPORTS)
def test_each_report_has_tests(report: str) -> None:
    for one in REPORTS[report]:
        file, _, name = one.partition("::")
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, one


def test_unchanged_files_are_not_read_again_in_place(
    tmp_path: Path,
    reads: list[str],  # noqa: F811
) -> None:
    """Whatever `load_inplace` says; files that a trainer has written are."""
    known = make()
    written(tmp_path / "a", 1.0)
    again = LoRARequest("a", 1, str(tmp_path / "a"), load_inplace=True)
    first = known.adapter(again)
    assert all(known.adapter(again) is first for _ in range(5)) and reads == ["a"]
    written(tmp_path / "a", 2.0, 1_000_001)
    assert known.adapter(again) is not first and reads == ["a", "a"]


@pytest.mark.slow
def test_no_more_is_compiled_at_the_start(tmp_path: Path) -> None:
    """One program serves rows with adapters and rows without, on a CPU."""
    path = byte_llama(tmp_path / "model")
    counts = []
    for slots in ({}, {"enable_lora": True, "max_loras": 8}):
        settings = {"model": str(path), "max_num_batched_tokens": 16, "max_num_seqs": 4} | slots
        engine = LLMEngine.from_config(EngineConfig.from_settings(**settings))
        counts.append(engine.warmup(use_tqdm=False))
    assert counts[0] == counts[1] > 0
