"""What other engines were reported to do on several devices, and what shows that this one does not.

REPORTS says in plain words what was reported (spec: FIELD 3.3, by its numbers) and which test holds
it here. What no other test holds is below.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.errors import ConfigError
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.meta.trees import ROOT
from tests.support.tiny_llama import tiny_llama


class Report(NamedTuple):
    """Attributes:
    number: In FIELD 3.3.
    where: Whose tracker it is in.
    tests: The tests that hold it here: FILE::FUNCTION.
    """

    number: int
    where: str
    what: str
    tests: tuple[str, ...]


HERE = "tests/parallel/test_field_reports.py"
EIGHT = "tests/parallel/on_eight_devices.py"
CODES = "tests/parallel/codes_on_eight_devices.py"
REPORTS = [
    Report(1, "sglang-jax#199", "more devices than KV heads crash", (
        f"{EIGHT}::test_i30_to_i37_any_number_of_devices_gives_the_oracle_s_outputs",
        "tests/parallel/test_divided.py::test_a_query_head_lies_beside_its_kv_head",
        "tests/parallel/test_processes.py::test_what_layers_say_to_each_other_is_in_one_order",
    )),
    Report(2, "tpu-inference#1847", "latent attention reads beyond its pages", (
        f"{HERE}::test_latent_attention_is_refused_or_right",
    )),
    Report(3, "tpu-inference PR#2988", "a scale is cut along an axis that is none", (
        f"{EIGHT}::test_each_device_holds_its_share_and_nothing_else",
        f"{CODES}::test_devices_have_the_logits_of_one",
    )),
    Report(4, "tpu-inference PR#2144", "out_specs in another order than the results", (
        f"{EIGHT}::test_each_device_holds_its_share_and_nothing_else",
        f"{EIGHT}::test_i52_bits_are_the_same_on_any_number_of_devices",
    )),
    Report(5, "tpu-inference PR#2585", "a cut through a head costs an all-to-all", (
        f"{EIGHT}::test_devices_talk_twice_a_layer_and_copy_neither_weights_nor_cache",
    )),
    Report(6, "tpu-inference PR#624", "a replicated device_put leaks", (
        f"{HERE}::test_a_second_start_compiles_nothing_and_steps_keep_no_arrays",
    )),
    Report(6, "tpu-inference PR#139", "devices are asked for before it is said which are visible", (
        f"{HERE}::test_what_is_imported_asks_for_no_device",
    )),
    Report(7, "jax#38503, jax#40831", "a rank that is stuck blocks all others for ever", (
        "tests/processes/test_ends_of_runners.py::test_a_runner_ends_at_any_call",
        "tests/processes/test_any_process_at_any_step.py"
        "::test_each_request_of_llm_ends_with_a_typed_error",
    )),
    Report(9, "jax#21236", "shard_map misses the compilation cache", (
        f"{HERE}::test_a_second_start_compiles_nothing_and_steps_keep_no_arrays",
    )),
    Report(9, "jax#15368", "shard_map copies what was donated", (
        f"{EIGHT}::test_the_donated_cache_stays_where_it_is_on_each_device",
    )),
    Report(11, "vllm#52997", "a share is smaller than a block of FP8 scales", (
        f"{CODES}::test_devices_have_the_logits_of_one",
        f"{CODES}::test_groups_that_a_cut_would_divide_are_of_whole_rows",
    )),
    Report(11, "vllm#41511", "scales are not cut along K", (
        f"{CODES}::test_devices_have_the_logits_of_one",
    )),
    Report(12, "vllm#41530", "the death of a worker is a hang", (
        "tests/parallel/test_processes.py::test_the_end_of_one_is_the_end_of_all",
    )),
]  # fmt: skip


@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.where)
def test_the_tests_of_a_report_exist(report: Report) -> None:
    for test in report.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, test


def in_a_process(code: str, *given: str, **variables: str) -> str:
    command = [sys.executable, "-c", code, *given]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
    return ended.stdout


@pytest.mark.slow
def test_what_is_imported_asks_for_no_device() -> None:
    """A variable that names the visible devices may thus be set until an engine is made."""
    code = """
import jax_engine, jax_engine.llm, jax_engine.engine.startup.build, jax_engine.serving.async_llm
from jax_engine import EngineConfig
EngineConfig(model="x", tensor_parallel_size=2, distributed_executor_backend="uni")
from jax._src.xla_bridge import backends_are_initialized
print(backends_are_initialized())
"""
    assert in_a_process(code).split()[-1] == "False"


STARTS = """
import sys, jax
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
from jax_engine import LLM, SamplingParams
llm = LLM(
    sys.argv[1], skip_tokenizer_init=True, max_model_len=40, block_size=4, max_num_seqs=2,
    num_gpu_blocks_override=30, dtype="float32", tensor_parallel_size=2,
    distributed_executor_backend="uni", enable_prefix_caching=False,
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

def steps(count):
    asked = SamplingParams(max_tokens=count, ignore_eos=True, temperature=0.0)
    llm.generate({"prompt_token_ids": [3, 4, 5]}, asked, use_tqdm=False)
    return len(jax.live_arrays()), sum(one.nbytes for one in jax.live_arrays())

steps(20)
first, second = steps(20), steps(36)
print(first == second, events.count("/jax/compilation_cache/cache_hits"),
      events.count("/jax/compilation_cache/cache_misses"))
"""


@pytest.mark.slow
def test_a_second_start_compiles_nothing_and_steps_keep_no_arrays(tmp_path: Path) -> None:
    """Two devices in one process have as many live arrays after many steps as after few."""
    path, _ = tiny_llama(tmp_path / "tiny", num_attention_heads=8, num_key_value_heads=4)
    flags = "--xla_force_host_platform_device_count=2"
    variables = {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    found = [in_a_process(STARTS, str(path), **variables).split()[-3:] for _ in range(2)]
    (same, _, missed), (same_again, hit, missed_again) = found
    assert same == same_again == "True"
    assert int(missed) > 0 and int(missed_again) == 0 and int(hit) > 0, found


@pytest.mark.slow
def test_latent_attention_is_refused_or_right(tmp_path: Path) -> None:
    """Never wrong in silence."""
    write(cases()["deepseek_v2"], tmp_path)
    settings: dict[str, Any] = {
        "skip_tokenizer_init": True, "max_model_len": 32, "num_gpu_blocks_override": 40,
        "block_size": 4, "dtype": "float32", "batch_invariant": True,
    }  # fmt: skip
    asked = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    found = []
    for size in (1, 2):
        try:
            llm = LLM(str(tmp_path), **settings, tensor_parallel_size=size)
        except ConfigError as error:
            assert size == 2 and "latent attention" in str(error)
            return
        (output,) = llm.generate({"prompt_token_ids": [3, 9, 4, 5, 6]}, asked, use_tqdm=False)
        found.append(output.outputs[0].token_ids)
    assert found[0] == found[1]
