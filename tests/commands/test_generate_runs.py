"""`generate` as a process: Ctrl-C, a pipe that is closed, and the answers of `LLM`."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from jax_engine import LLM, SamplingParams
from tests.commands.conftest import FLAGS, SETTINGS
from tests.commands.test_generate import read, request, write
from tests.support.patience import HANG_S, PATIENT, until


def start(*words: object, **options: Any) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", PATIENT, "generate", *map(str, words), *FLAGS]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **options)


def test_a_file_has_the_answers_of_llm(tmp_path: Path, checkpoint: Path) -> None:
    """Ctrl-C in the middle, and the rest from the same command.

    The first has its requests from a pipe that stays open, so it cannot end before it is stopped.
    """
    prompts = [f"prompt {i}" for i in range(40)]
    body: dict[str, Any] = {"max_tokens": 40, "seed": 5, "ignore_eos": True}
    lines = [request(text, prompt=text, **body) for text in prompts]
    source, target = write(tmp_path / "in.jsonl", *lines), tmp_path / "out.jsonl"
    first = start("-", target, "--model", checkpoint, stdin=subprocess.PIPE)
    assert first.stdin is not None
    first.stdin.write(b"".join(source.read_bytes().splitlines(keepends=True)[:20]))
    first.stdin.flush()

    def has_answered() -> bool:
        assert first.poll() is None, first.communicate()
        return target.exists() and target.stat().st_size > 0

    until(has_answered, "an answer")
    first.send_signal(signal.SIGINT)
    first.wait(HANG_S)  # though its input is open
    _, said = first.communicate()
    assert first.returncode == 130 and b"goes on with the rest" in said and b"Trace" not in said
    assert 0 < len(read(target)) < len(prompts)
    second = start(source, target, "--model", checkpoint)
    assert second.communicate(timeout=HANG_S) and second.returncode == 0
    params = SamplingParams(max_tokens=40, seed=5, ignore_eos=True)
    llm = LLM(str(checkpoint), **SETTINGS)
    offline = {one.prompt: one.outputs[0].text for one in llm.generate(prompts, params)}
    found = {
        one["custom_id"]: one["response"]["body"]["choices"][0]["text"] for one in read(target)
    }
    assert found == offline and len(read(target)) == len(prompts)


def test_a_pipe_that_is_closed_ends_it(tmp_path: Path, checkpoint: Path) -> None:
    process = start(
        "--text", "-", "-", "--model", checkpoint, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["line"] == 1
    process.stdout.close()
    process.stdin.write(b"two\n" * 3)
    process.stdin.close()
    assert process.stderr is not None
    assert b"Trace" not in process.stderr.read() and process.wait(HANG_S) == 141
