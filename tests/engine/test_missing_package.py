"""What runs without `gguf`, `llguidance` and what flax brings, and what asks for them by name."""

import subprocess
import sys
from pathlib import Path

import pytest

from jax_engine import LLM, MissingPackageError, SamplingParams, StructuredOutputsParams
from jax_engine.models.model_loader import open_model
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.meta.trees import ROOT
from tests.support.tiny_llama import byte_llama

TINY = {"dtype": "float32", "max_model_len": 64, "num_gpu_blocks_override": 32}
# None in sys.modules: an import of it fails as if it were not installed.
EVERY_MODULE = """
import sys
for name in ("gguf", "llguidance", "orbax", "tensorstore"):
    sys.modules[name] = None
import jax_engine
for name in jax_engine.__all__:
    getattr(jax_engine, name)
import jax_engine.engine.startup.build, jax_engine.models.model_loader
import jax_engine.tokenization.tokenizer
import jax_engine.models.decoder, jax_engine.worker.worker, jax_engine.serving.api.app
print("imported")
"""


@pytest.mark.slow
def test_importing_the_engine_needs_none_of_them() -> None:
    command = [sys.executable, "-c", EVERY_MODULE]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout.strip() == "imported", ended.stderr


def test_a_gguf_file_without_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    for opening in (open_model, load_tokenizer):
        with pytest.raises(MissingPackageError, match=r"m\.gguf.* needs .*pip install gguf"):
            opening(str(tmp_path / "m.gguf"))


def test_the_default_model_without_gguf_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(
        "jax_engine.models.checkpoints.resolve.default_model_path", lambda: pytest.fail()
    )
    with pytest.raises(MissingPackageError, match=r"default model.*pip install gguf"):
        LLM()


@pytest.mark.slow
def test_a_guided_request_without_llguidance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It disturbs neither its neighbour nor what comes after it."""
    monkeypatch.setitem(sys.modules, "llguidance", None)
    monkeypatch.setitem(sys.modules, "gguf", None)
    llm = LLM(str(byte_llama(tmp_path / "model")), **TINY)
    plain = SamplingParams(temperature=0.0, max_tokens=3)
    guided = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes", "no"]))
    with pytest.raises(MissingPackageError, match=r"structured_outputs.*pip install llguidance"):
        llm.generate(["a", "b"], [plain, guided])
    assert not llm.llm_engine.has_unfinished_requests()
    assert len(llm.generate("a", plain)[0].outputs[0].token_ids) == 3
