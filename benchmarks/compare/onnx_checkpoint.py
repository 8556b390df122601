"""The default model for onnxruntime-genai: the same values, in 4-bit blocks of 32 as in Q4_0."""

import json
import subprocess
from pathlib import Path

from benchmarks.compare.checkpoint import hf_directory
from benchmarks.compare.environments import CannotInstall
from jax_engine.models.checkpoints.default_model import default_model_path
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf

BUILDER = "onnxruntime_genai.models.builder"
OPTIONS = ("int4_block_size=32", "int4_is_symmetric=true", "int4_accuracy_level=4")


def onnx_directory(folder: Path, python: str) -> Path:
    """Has the package's own builder write the model unless it is there; this takes a minute.

    Accuracy level 4, its fastest, rounds activations to 8 bits. The padding token is 0.

    Args:
        python: the Python of the environment with the package.

    Raises:
        CannotInstall: the builder failed.
    """
    directory = folder / "smollm2-onnx-int4"
    marker = directory / "complete"
    if marker.exists():
        return directory
    source = hf_directory(folder)
    backend_from_gguf(GgufFile(default_model_path()).metadata).save(str(source / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}  # the builder copies it, we do not use it
    (source / "tokenizer_config.json").write_text(json.dumps(kind))
    places = ["-i", str(source), "-o", str(directory), "-c", str(folder / "onnx-cache")]
    command = [python, "-m", BUILDER, *places, "-p", "int4", "-e", "cpu"]
    command += ["--extra_options", *OPTIONS]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise CannotInstall(f"{BUILDER}: {ended.stderr.strip().splitlines()[-1:]}")
    settings = directory / "genai_config.json"
    raw = json.loads(settings.read_text())
    raw["model"]["pad_token_id"] = 0
    settings.write_text(json.dumps(raw, indent=1))
    marker.touch()
    return directory
