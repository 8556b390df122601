"""What only Linux has is taken away: on a Mac the engine gives the same tokens, without it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jax_engine import LLM, SamplingParams
from tests.meta.trees import ROOT
from tests.support.tiny_llama import tiny_llama

SETTINGS = {
    "dtype": "float32", "max_model_len": 64, "num_gpu_blocks_override": 32,
    "skip_tokenizer_init": True, "seed": 0,
}  # fmt: skip
PROMPT = [3, 5, 7, 11]
# As a Mac answers: no /proc, no /sys, no number of processors that are allowed, no advice for
# pages but its own. The libraries are imported before, since they look for their own binaries.
AS_ON_A_MAC = """
import builtins, ctypes, io, mmap, os, platform, sys
import flax, jax, numba, numpy, tokenizers
def hidden(opened):
    def opens(file, *arguments, **settings):
        if isinstance(file, (str, os.PathLike)) and os.fspath(file).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(file))
        return opened(file, *arguments, **settings)
    return opens
builtins.open, io.open = hidden(open), hidden(io.open)
os.stat, os.listdir = hidden(os.stat), hidden(os.listdir)
for name in [name for name in dir(mmap) if name.startswith("MADV_")]:
    delattr(mmap, name)
for name in ("MAP_POPULATE",):
    delattr(mmap, name)
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create", "posix_fadvise"):
    delattr(os, name)
class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "madvise":
            return lambda *arguments: -1  # it exists, and knows none of Linux's advice
        return super().__getattr__(name)
ctypes.CDLL = Library
sys.platform = "darwin"
platform.system = lambda: "Darwin"
platform.processor = lambda: "arm"
"""
GENERATE = """
import json
from jax_engine import LLM, SamplingParams
llm = LLM(sys.argv[1], **json.loads(sys.argv[2]))
params = SamplingParams(temperature=0.0, max_tokens=6)
(output,) = llm.generate({"prompt_token_ids": json.loads(sys.argv[3])}, params, use_tqdm=False)
print(json.dumps(list(output.outputs[0].token_ids)))
"""


@pytest.mark.slow
def test_the_same_tokens(tmp_path: Path) -> None:
    model = str(tiny_llama(tmp_path / "tiny")[0])
    params = SamplingParams(temperature=0.0, max_tokens=6)
    (expected,) = LLM(model, **SETTINGS).generate({"prompt_token_ids": PROMPT}, params)
    given = [model, json.dumps(SETTINGS), json.dumps(PROMPT)]
    command = [sys.executable, "-c", AS_ON_A_MAC + GENERATE, *given]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == list(expected.outputs[0].token_ids)
    assert "Traceback" not in ended.stderr and "left to XLA" not in ended.stderr
