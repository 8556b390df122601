"""Whether a model could be downloaded."""

import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

from jax_engine.commands.diagnosis.finding import Finding
from jax_engine.commands.diagnosis.storage import default_model
from jax_engine.models.default_model import REQUIREMENT

PATIENCE_S = 5.0
_REACHED = "reachable"
_INDEX = "pip's index"


def network() -> Iterator[Finding]:
    """Asks the hub, and pip for the default model if that is not here, both at once."""
    places: dict[str, Callable[[], str]] = {"hub": _hub}
    if not default_model().is_file():
        places[_INDEX] = _pip
    answers: dict[str, str] = {}

    def ask(name: str) -> None:
        answers[name] = places[name]()

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in places]
    for one in threads:
        one.start()
    end = time.monotonic() + PATIENCE_S
    for one in threads:
        one.join(max(0.0, end - time.monotonic()))
    for name in places:
        answer = answers.get(name, f"no answer within {PATIENCE_S:.0f} s")
        lost = name == _INDEX and answer != _REACHED
        advice = "the default model is not here, and cannot be had: give others by --model"
        yield Finding(name, answer, advice if lost else None)


def _hub() -> str:
    """A name that cannot be resolved may take long: so this has a thread of its own."""
    url = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=PATIENCE_S):
            return _REACHED
    except urllib.error.HTTPError:  # it has answered
        return _REACHED
    except (OSError, ValueError) as error:
        return f"not reachable ({getattr(error, 'reason', error)})"


def _pip() -> str:
    """Pip knows how it is set up."""
    command = [sys.executable, "-m", "pip", "index", "versions", REQUIREMENT.partition("=")[0]]
    command += ["--disable-pip-version-check", "--retries", "0", "--timeout", str(int(PATIENCE_S))]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return f"no answer within {PATIENCE_S:.0f} s"
    return _REACHED if done.returncode == 0 else "not reachable, or without the default model"
