"""`generate` as a process: Ctrl-C, a pipe that is closed, and the answers of `LLM`."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, LoRARequest, SamplingParams
from tests.commands.conftest import FLAGS, SETTINGS, Run
from tests.commands.test_generate import read, request, write
from tests.lora.adapters import tensors_of, write_folder
from tests.support.adapted import modules_at
from tests.support.engine_in_thread import in_threads
from tests.support.patience import HANG_S, PATIENT, until


def start(*words: object, **options: Any) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", PATIENT, "generate", *map(str, words), *FLAGS]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **options)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_line_may_name_an_adapter(
    tmp_path: Path, checkpoint: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--lora-modules`, as of the server."""
    in_threads(monkeypatch)
    of, names = modules_at(checkpoint)
    folder = write_folder(tmp_path / "french", tensors_of(names[:3], of=of))
    body: dict[str, Any] = {"prompt": "ab", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    models = ("french", "tiny", "german")
    source = write(tmp_path / "in.jsonl", *(request(one, model=one, **body) for one in models))
    target = tmp_path / "out.jsonl"
    words = ["run-batch", "-i", source, "-o", target, "--model", checkpoint, *FLAGS, "--overwrite",
             "--served-model-name", "tiny", "--max-lora-rank", "4"]  # fmt: skip

    ended = run(*words, "--enable-lora", "--lora-modules", f"french={folder}")
    assert ended.status == 1 and "3 lines are answered; 1 are errors" in ended.err, ended.err
    found = {one["custom_id"]: one["response"]["body"] for one in read(target)}
    llm = LLM(str(checkpoint), **SETTINGS, enable_lora=True, max_lora_rank=4)
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    loras = [LoRARequest("french", 1, str(folder)), None]
    for name, one in zip(
        models, llm.generate(["ab"] * 2, params, lora_request=loras), strict=False
    ):
        assert found[name]["choices"][0]["text"] == one.outputs[0].text
        assert found[name]["model"] == name
    assert found["french"]["choices"] != found["tiny"]["choices"]
    assert found["german"]["error"]["code"] == "model_not_found"

    ended = run(*words, "--enable-lora", "--lora-modules", f"french={tmp_path}/gone")
    assert ended.status == 1 and "--lora-modules french=" in ended.err
    assert "no adapter at" in ended.err and "Traceback" not in ended.err
    ended = run(*words, "--lora-modules", f"french={folder}")
    assert ended.status == 1 and "--lora-modules needs --enable-lora" in ended.err


@pytest.mark.slow
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
