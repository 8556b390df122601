"""Whether a model could be downloaded."""

import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

from jax_engine.commands.diagnosis.finding import Finding
from jax_engine.commands.diagnosis.storage import default_model

PATIENCE_S = 3.0
_INDEX, _REACHED = "pip's index", "reachable"


def network() -> Iterator[Finding]:
    """Asks the hub and pip's index at once; those that do not answer in time are not reached."""
    places = {
        "hub": lambda: os.environ.get("HF_ENDPOINT") or "https://huggingface.co",
        _INDEX: _pip_index,
    }
    answers: dict[str, tuple[str, str]] = {}

    def ask(name: str) -> None:
        url = places[name]()
        answers[name] = (urlsplit(url).hostname or url, "")
        answers[name] = (answers[name][0], _reach(url))

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in places]
    for one in threads:
        one.start()
    end = time.monotonic() + PATIENCE_S
    for one in threads:
        one.join(max(0.0, end - time.monotonic()))
    for name in places:
        host, answer = answers.get(name, (name, ""))
        answer = answer or f"no answer within {PATIENCE_S:.0f} s"
        lost = name == _INDEX and answer != _REACHED and not default_model().is_file()
        advice = "the default model is not here, and cannot be had: give others by --model"
        yield Finding(name, f"{host}: {answer}", advice if lost else None)


def _reach(url: str) -> str:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PATIENCE_S):
            return _REACHED
    except urllib.error.HTTPError:  # it has answered
        return _REACHED
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"not reachable ({reason})"


def _pip_index() -> str:
    """The address that pip is set up with. It may hold a password, so only its host is shown."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    configured = done.stdout.strip() if done.returncode == 0 else ""
    return os.environ.get("PIP_INDEX_URL") or configured or "https://pypi.org/simple/"
