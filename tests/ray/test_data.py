"""Files of requests answered in actors of `ray.data`: the lines of `generate`, each once."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.ray import LLMConfig, generate_file
from tests.processes.test_ray_actors import below
from tests.ray.conftest import ENGINE, PATIENT, QUIET, alive
from tests.support.patience import HANG_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
COUNT = 24
PROMPTS = [f"prompt {number} of a file" for number in range(COUNT)]


def config(model: str) -> LLMConfig:
    loading = {"model_id": "tiny", "model_source": model}
    return LLMConfig(model_loading_config=loading, engine_kwargs=ENGINE)


def write(path: Path) -> Path:
    """Prompts of both forms, and a line that is no request."""
    lines: list[Any] = []
    for number, prompt in enumerate(PROMPTS):
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0.0, "return_token_ids": True}
        batch = {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}
        lines.append(batch if number % 3 == 0 else body)
    lines.append({"prompt": "x", "messages": []})
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def answers(path: Path) -> dict[int, Any]:
    """The choice of each whole line by its number; a line that is there twice is an error."""
    found: dict[int, Any] = {}
    for text in path.read_text().rpartition("\n")[0].splitlines():
        line = json.loads(text)
        number = line.get("line") or int(line["id"].removeprefix("batch_req_"))
        assert number not in found
        found[number] = line if "line" in line else line["response"]["body"]["choices"][0]
    return found


def check(path: Path, model: str) -> None:
    """Each line is there once, with the tokens of `LLM.generate`."""
    found = answers(path)
    assert found.keys() == set(range(1, COUNT + 2)) and "error" in found[COUNT + 1]
    params = SamplingParams(temperature=0.0, max_tokens=8)
    outputs = LLM(model, **ENGINE).generate(PROMPTS, params, use_tqdm=False)
    for number, output in enumerate(outputs, 1):
        assert found[number]["token_ids"] == list(output.outputs[0].token_ids)
        assert found[number]["text"] == output.outputs[0].text


def test_a_file_that_is_begun_is_finished(cluster: Any, tiny: str, tmp_path: Path) -> None:
    """By two actors; then there is nothing left to do."""
    source, target = write(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    few = tmp_path / "few.jsonl"
    few.write_text("".join(source.read_text().splitlines(keepends=True)[:5]))
    assert generate_file(config(tiny), few, target, num_cpus=1) == 5
    before = target.read_text()
    with target.open("a") as file:
        file.write('{"line": 6, "te')  # torn: a driver was killed in it
    assert generate_file(config(tiny), source, target, concurrency=2, batch_size=4) == COUNT - 5
    assert target.read_text().startswith(before)
    check(target, tiny)
    whole = target.read_text()
    assert generate_file(config(tiny), source, target) == 0
    assert target.read_text() == whole


KILLED = """
import os, signal, sys, threading, time
import ray
from jax_engine.ray import generate_file
from tests.ray.conftest import OF_RAY
from tests.ray.test_data import actors, config
model, source, target, what = sys.argv[1:]
ray.init(**OF_RAY)

def size():
    return os.path.getsize(target) if os.path.exists(target) else 0

before = size()

def kill():
    while size() <= before:
        time.sleep(0.01)
    if what == "driver":
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(actors()[0], signal.SIGKILL)
    print("killed", flush=True)

threading.Thread(target=kill, daemon=True).start()
print(generate_file(config(model), source, target, batch_size=2, num_cpus=1), flush=True)
ray.shutdown()
"""


def actors() -> list[int]:
    """The processes of a dataset's actors."""
    names = {pid: Path(f"/proc/{pid}/cmdline") for pid in alive(below(os.getpid()))}
    return [pid for pid, path in names.items() if path.read_bytes().startswith(b"ray::MapWorker")]


def test_what_is_killed_is_gone_on_with(tiny: str, tmp_path: Path) -> None:
    """First the driver, and Ray with it; then an actor of the next one."""
    source, target = write(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    command = [sys.executable, "-c", KILLED, tiny, str(source), str(target)]
    environment = {**os.environ, **PATIENT, **QUIET}

    def run(kills: str) -> tuple[int, str]:
        ended = subprocess.run(
            [*command, kills], env=environment, stdout=subprocess.PIPE, text=True, timeout=HANG_S
        )
        return ended.returncode, ended.stdout

    assert run("driver")[0] == -signal.SIGKILL
    assert 0 < len(answers(target)) < COUNT + 1
    status, said = run("actor")
    assert status == 0 and "killed" in said
    check(target, tiny)
