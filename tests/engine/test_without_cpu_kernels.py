"""Where the kernels for a CPU cannot run, XLA's operations give the same tokens, and one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jax_engine import LLM, SamplingParams
from tests.meta.trees import ROOT
from tests.support.tiny_llama import tiny_llama

PROMPTS = [[3, 5, 7, 11], [4] * 9]
NO_NUMBA = 'import sys; sys.modules["numba"] = None'
NO_LLVM = 'import sys; sys.modules["llvmlite.binding"] = None'
# As where LLVM has no instructions for what a kernel does: some compile, and then one does not.
COMPILE_ERROR = """
import numba, cpu_kernels.compiling.jit as jit
compile = jit.cached
def cached(compiler, *signature):
    def decorate(function):
        if "cpu_kernels.row_norm" in function.__qualname__:
            raise numba.core.errors.LoweringError("no such instruction\\nin line 1")
        return compile(compiler, *signature)(function)
    return decorate
jit.cached = cached
"""
REFUSED = """
import jax
def refuse(*arguments, **settings):
    raise RuntimeError("INVALID_ARGUMENT: the API version is incompatible")
jax.ffi.register_ffi_target = refuse
"""
GENERATE = """
import json, sys
from jax_engine import LLM, SamplingParams
llm = LLM(sys.argv[1], dtype="float32", max_model_len=64, num_gpu_blocks_override=32,
          skip_tokenizer_init=True)
prompts = [{"prompt_token_ids": ids} for ids in json.loads(sys.argv[2])]
outputs = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=6), use_tqdm=False)
print(json.dumps([list(output.outputs[0].token_ids) for output in outputs]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))[0]


@pytest.fixture(scope="module")
def expected(model: Path) -> list[list[int]]:
    llm = LLM(
        str(model),
        dtype="float32",
        max_model_len=64,
        num_gpu_blocks_override=32,
        skip_tokenizer_init=True,
    )
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    outputs = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=6))
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (NO_NUMBA, "ModuleNotFoundError: "),
        (NO_LLVM, "ModuleNotFoundError: "),
        (COMPILE_ERROR, "LoweringError: no such instruction)"),
        (REFUSED, "RuntimeError: INVALID_ARGUMENT: the API version"),
    ],
    ids=["no-numba", "no-llvm", "compile-error", "refused-by-xla"],
)
def test_xla_takes_over(broken: str, reason: str, model: Path, expected: list[list[int]]) -> None:
    command = [sys.executable, "-c", broken + GENERATE, str(model), json.dumps(PROMPTS)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == expected
    (line,) = [line for line in ended.stderr.splitlines() if "left to XLA" in line]
    assert reason in line
    assert "Traceback" not in ended.stderr
