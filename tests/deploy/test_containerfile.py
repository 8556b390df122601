"""The Containerfile without a builder: its files, its pins, its probe, and its steps, run here."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from scripts.wheel_contents import problems
from tests.deploy.objects import DEPLOY, ROOT, container, objects
from tests.support.http_server import HttpServer
from tests.support.patience import HANG_S, until
from tests.support.scripted_app import served
from tests.support.tiny_llama import byte_llama

# Instructions with their continued lines joined, without comments.
_LINES = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text("utf-8"), flags=re.M)
INSTRUCTIONS = [
    line.partition(" ")[::2] for line in _LINES.replace("\\\n", "").splitlines() if line
]
USER = 10001
OFFLINE = ("NewConnectionError", "Temporary failure in name resolution", "Name or service not")


def arguments(name: str) -> list[str]:
    return [words.strip() for one, words in INSTRUCTIONS if one == name]


def copied() -> list[str]:
    """What the first stage takes out of the checkout."""
    from_checkout = [words for words in arguments("COPY") if not words.startswith("--from")]
    return [name for words in from_checkout for name in words.split()[:-1]]


def test_what_is_copied_is_there_and_is_all_that_is_sent() -> None:
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    }
    assert allowed == set(copied())
    assert all((ROOT / name).exists() for name in copied())


def test_a_wheel_of_these_files_is_whole() -> None:
    """The build backend reads these from the checkout, and the wheel's packages are among them."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    named = set(re.findall(r'^(?:readme|license-files) = \[?"([^"]+)"', project, re.M))
    (packages,) = re.findall(r"^packages = \[(.*)\]$", project, re.M)
    named |= {name.strip(' "') for name in packages.split(",")}
    assert named | {"pyproject.toml"} <= set(copied())


def pins(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines()
    return dict(tuple(line.split("==")) for line in lines if "==" in line)


def test_versions_are_the_projects() -> None:
    (command,) = [one for one in arguments("RUN") if "pip install" in one]
    constraints = re.findall(r"--constraint (\S+)", command)
    assert constraints == ["constraints.txt", "constraints-cuda.txt"]
    cuda, project = pins(DEPLOY / "constraints-cuda.txt"), pins(ROOT / "constraints.txt")
    assert not set(cuda) & set(project)
    assert {cuda[f"jax-cuda13-{part}"] for part in ("plugin", "pjrt")} == {project["jaxlib"]}
    compiled = pins(ROOT / "constraints-aot.txt")
    assert {name: cuda[name] for name in cuda if name in compiled} == {
        name: compiled[name] for name in cuda if name in compiled
    }


def test_both_stages_have_one_python_and_no_root() -> None:
    bases = [words.split()[0] for words in arguments("FROM")]
    assert set(bases) == {"docker.io/library/python:${PYTHON}-slim"} and len(bases) == 2
    assert arguments("ARG")[0] == "PYTHON=3.12"
    assert arguments("USER") == [f"{USER}:0"]


def health_check(port: int) -> list[str]:
    """The image's command, for a server at another port."""
    (words,) = arguments("HEALTHCHECK")
    command = json.loads(words[words.index("CMD ") + 4 :])
    assert command[0] == "python" and "127.0.0.1:8000/health" in command[-1]
    code = command[-1].replace("8000", str(port)).replace("timeout=4", f"timeout={HANG_S}")
    return [sys.executable, *command[1:-1], code]


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
def test_the_health_check_tells(status: int | None, healthy: bool) -> None:
    if status is None:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
        done = subprocess.run(health_check(port), capture_output=True, timeout=HANG_S)
    else:
        route = Route("/health", lambda request: PlainTextResponse("x", status_code=status))
        with served(Starlette(routes=[route])) as url:
            port = int(url.rpartition(":")[2])
            done = subprocess.run(health_check(port), capture_output=True, timeout=HANG_S)
    assert (done.returncode == 0) == healthy


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """A folder in which the first stage's steps were run; other users can read it."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        root.chmod(0o755)
        (root / "source").mkdir()
        for name in copied():
            source, target = ROOT / name, root / "source" / Path(name).name
            ignored = shutil.ignore_patterns("__pycache__")
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)
        (command,) = [one for one in arguments("RUN") if "pip install" in one]
        command = command.replace("/opt/jax-engine", f"{root}/opt").replace("/wheels", f"{root}/w")
        base = Path(sys._base_executable)  # type: ignore[attr-defined]
        command = re.sub(r"^python ", f"{base} ", command).replace("--no-cache-dir", "")
        settings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            ["sh", "-ec", command], cwd=root / "source", env=settings | {"EXTRAS": ""},
            capture_output=True, text=True, timeout=4 * HANG_S,
        )  # fmt: skip
        if any(words in done.stderr for words in OFFLINE):
            pytest.skip("no package index here")
        assert done.returncode == 0, done.stderr
        yield root


@pytest.mark.slow
def test_the_steps_build_the_wheel_and_its_bytecode(image: Path) -> None:
    (wheel,) = (image / "w").glob("*.whl")
    assert problems(wheel) == []
    (package,) = (image / "opt" / "lib").glob("python3*/site-packages/jax_engine")
    assert (package / "__pycache__").is_dir()
    # Without it, the default model could not be fetched.
    assert list(package.parent.glob("pip"))


@pytest.mark.slow
def test_another_user_without_a_home_serves_and_drains(image: Path) -> None:
    """The command of the pods: nothing can be written but the cache and /tmp."""
    cache = image / "cache"
    cache.mkdir()
    # A script's first line may name a folder too long for it: so the module, as it does.
    command = [str(image / "opt" / "bin" / "python"), "-m", "jax_engine"]
    if os.getuid() == 0 and shutil.which("setpriv"):
        os.chown(cache, USER, 0)
        # This machine's Python may be in a home: its files are read as root does, none is written.
        rights = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
        who = ("setpriv", f"--reuid={USER}", "--regid=0", "--clear-groups", "--no-new-privs")
        command = [*who, *rights, *command]
    manifest = objects((DEPLOY / "kubernetes" / "cpu.yaml").read_text("utf-8"))
    flags = [one for one in container(manifest)["args"] if not one.startswith("--shutdown-timeout")]
    flags += [f"--shutdown-timeout={HANG_S}", "--host=127.0.0.1", "--port=0", "--block-size=4"]
    entry = json.loads(arguments("ENTRYPOINT")[0])
    checkpoint = byte_llama(image / "model")
    words = [*command, *entry[1:], str(checkpoint), *flags, "--max-model-len=64"]
    settings = {"XDG_CACHE_HOME": str(cache), "HOME": "/nonexistent", "NPROC": "2"}
    settings |= {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": "1"}
    server = HttpServer.started(["env", "-i", *(f"{k}={v}" for k, v in settings.items()), *words])
    try:
        _serves_and_drains(server)
    finally:
        server.process.kill()
    found = {path.name for path in cache.iterdir()}
    assert {"jax-engine", "cpu-kernels"} <= found, "".join(server.lines)
    if os.getuid() == 0 and shutil.which("setpriv"):
        assert {path.stat().st_uid for path in cache.rglob("*")} == {USER}


def _serves_and_drains(server: HttpServer) -> None:
    assert httpx2.get(f"{server.url}/health", timeout=HANG_S).status_code == 200
    long = {"prompt": ["a"] * 16, "n": 4, "max_tokens": 60, "ignore_eos": True}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(
            httpx2.post, f"{server.url}/v1/completions", json=long, timeout=HANG_S
        )  # fmt: skip
        until(lambda: answer.done() or server.metric("jax_engine:num_requests_open") > 0)
        assert server.stop() == 0
        choices = answer.result(HANG_S).json()["choices"]
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    assert "draining" in "".join(server.lines)
