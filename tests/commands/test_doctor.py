"""`doctor` and `pull`: whatever is broken, one screen or one line, and no traceback."""

import json
import os
import platform
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from jax_engine.commands import diagnosis
from jax_engine.commands.diagnosis import Finding, findings_of, size
from jax_engine.models.model_loader import open_model
from jax_engine.worker.memory import shares_of_model
from tests.commands.conftest import Run
from tests.support.patience import HANG_S
from tests.support.tiny_llama import tiny_llama


def found(part: Any) -> dict[str, Finding]:
    return {one.name: one for one in findings_of("part", part)}


@pytest.mark.slow
def test_it_says_what_runs_here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "DEVICE_TIMEOUT_S", HANG_S)
    ended = run("doctor", "--json")
    parts = json.loads(ended.out)
    assert ended.status == int(bool(parts["to_do"])) and not ended.err
    assert parts["software"]["jax"][0].isdigit()
    assert parts["what runs where"]["weights, KV cache"].startswith("float32 and float32")
    assert parts["what runs where"]["attention"].startswith(("numba", "xla"))
    assert "writable" in parts["files"]["compiled steps"]
    assert parts["machine"]["memory"].endswith("GiB")


def test_what_is_to_do_comes_last(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def part() -> Any:
        yield Finding("a", "b", "do this")
        raise ZeroDivisionError("c")

    monkeypatch.setattr("jax_engine.commands.doctor.PARTS", {"one": part})
    ended = run("doctor")
    assert ended.status == 1 and ended.out.endswith("to do:\n  - do this\n")
    assert "not known (ZeroDivisionError: c)" in ended.out
    monkeypatch.setattr("jax_engine.commands.doctor.PARTS", {})
    assert run("doctor")[:2] == (0, "nothing to do\n")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ImportError('no libtpu')", "ImportError: no libtpu"),
        ("import os; os.abort()", "SIGABRT"),
        ("import time; time.sleep(1e6)", "not answered within 0 s"),
    ],
)
def test_a_broken_jax_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(code)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(diagnosis, "PACKAGES", str(tmp_path))
    monkeypatch.setattr(diagnosis, "DEVICE_TIMEOUT_S", 0.3 if "sleep" in code else HANG_S)
    one, *others = found(diagnosis.device).values()
    assert says in one.value and one.to_do is not None and "reinstall" in one.to_do
    assert ("less to do" in one.to_do) == ("sleep" in code)
    names = ["device memory", "weights, KV cache", "attention", "matrix products"]
    assert others == [Finding(name, "not known") for name in names]


def test_a_gpu_that_jax_does_not_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        "platform": "cpu", "devices": ["cpu"], "memory": 1 << 33, "memory_share": 0.05,
        "dtype": "float32", "attention": "numba", "products": "numba", "to_do": None,
    }  # fmt: skip
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(diagnosis, "has_nvidia_gpu", lambda: True)
    first, memory, *_ = diagnosis._findings_of(facts)
    assert first.to_do is not None and "jax-engine[cuda]" in first.to_do
    assert memory.value == "8.0 GiB; an engine takes 409.6 MiB of it"
    monkeypatch.setattr(diagnosis, "has_nvidia_gpu", lambda: False)
    assert next(diagnosis._findings_of(facts)).to_do is None


def test_caches_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_ENGINE_CACHE", str(tmp_path / "new" / "cache"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/none")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "model").write_bytes(b"x" * 3000)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    parts = found(diagnosis.storage)
    assert parts["compiled steps"].to_do is None and "empty" in parts["compiled steps"].value
    assert not (tmp_path / "new").exists()
    assert "NUMBA_CACHE_DIR names" in str(parts["CPU kernels"].to_do)
    assert parts["hub's models"].value == f"{tmp_path / 'hub'}: 3 KiB, writable"
    assert parts["default model"].value.startswith("not here")
    monkeypatch.delenv("JAX_ENGINE_CACHE")
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert len(found(diagnosis.storage)) == 4  # without a home, too
    assert [size(one) for one in (0, 1023, 1024, 3 << 30)] == ["0 B", "1023 B", "1 KiB", "3.0 GiB"]


def test_no_network_is_found_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:1/simple")
    monkeypatch.setenv("JAX_ENGINE_CACHE", str(tmp_path))
    monkeypatch.setattr(diagnosis, "NETWORK_TIMEOUT_S", HANG_S)
    hub, index = findings_of("network", diagnosis.network)
    assert "not reachable" in hub.value and hub.to_do is None
    assert index.value != "reachable" and "cannot be had" in str(index.to_do)
    assert "secret" not in str(index)
    monkeypatch.setattr(diagnosis, "default_model", lambda: Path(__file__))
    monkeypatch.setattr(diagnosis, "NETWORK_TIMEOUT_S", 0.2)
    answered = threading.Event()
    monkeypatch.setattr(diagnosis, "_hub", lambda: str(answered.wait()))
    (hub,) = findings_of("network", diagnosis.network)
    answered.set()
    assert "no answer within" in hub.value


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "version", lambda name: None if name == "gguf" else "1.0")
    parts = found(diagnosis.software)
    named = ("python", "jax-engine", *diagnosis.NEEDED, *diagnosis.OPTIONAL)
    assert tuple(parts) == named
    assert parts["python"].value.startswith(platform.python_version())
    assert {parts[name].value for name in named[1:] if name != "gguf"} == {"1.0"}
    assert parts["gguf"].value == "missing: no GGUF files and the default model"
    assert parts["gguf"].to_do == "pip install gguf: GGUF files and the default model need it"
    assert [name for name, one in parts.items() if one.to_do] == ["gguf"]


def test_without_any_package_each_is_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "version", lambda name: None)
    parts = found(diagnosis.software)
    assert [name for name, one in parts.items() if not one.to_do] == ["python", "jax-engine"]
    assert parts["jax-engine"].value == "a checkout, not installed"
    assert parts["numpy"] == Finding("numpy", "missing", "pip install numpy")


def test_how_large_a_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files in all folders; one that goes while it is looked at does not count."""
    monkeypatch.setattr(diagnosis, "MANY", 3)
    sizes = {"a": 1000, "b/c": 24, "b/d/e": 5000}
    for name, length in sizes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * length)
    assert diagnosis._size_of(tmp_path) == size(6024)
    assert diagnosis._size_of(tmp_path / "none") == "empty"
    stat = os.lstat

    def gone(path: str) -> os.stat_result:
        if path.endswith("e"):
            raise FileNotFoundError(path)
        return stat(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", gone)
        assert diagnosis._size_of(tmp_path) == size(1024)
        assert diagnosis._size_of(tmp_path / "b" / "d") == "empty"
    (tmp_path / "b/d/f").write_bytes(b"x" * 2000)
    assert diagnosis._size_of(tmp_path) == f"more than {size(8024)}"


def test_pull_says_where_a_model_is(
    run: Run, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("pull", checkpoint)[:2] == (0, f"{checkpoint}\n")
    file = tmp_path / "x.gguf"
    file.touch()
    assert run("pull", file).out == f"{file}\n"
    for name in ("no such model!", tmp_path / "none" / "deeper"):
        ended = run("pull", name)
        assert ended.status == 1 and not ended.out
        assert ended.err.count("\n") == 1 and "there is no such file" in ended.err
    asked: list[Any] = []
    monkeypatch.setattr(
        "jax_engine.models.checkpoints.resolve.resolve_model",
        lambda model, hub: asked.append((model, hub.revision, hub.download_dir, hub.token)) or "p",
    )
    run("pull", "a/b", "--revision=r", f"--download-dir={os.sep}d", "--hf-token")
    assert asked == [("a/b", "r", "/d", True)]


@pytest.mark.slow
def test_it_says_what_each_number_of_devices_would_hold(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has 9 heads and 3 KV heads of 8 numbers, in float32."""
    monkeypatch.setattr(diagnosis, "DEVICE_TIMEOUT_S", HANG_S)
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 36}
    path, _ = tiny_llama(tmp_path / "tiny", **heads)
    parts = json.loads(run("doctor", "--json", "--model", str(path)).out)["several devices"]
    assert set(parts) == {"on a CPU", "size 1", "size 3", "size 9", "2 stages"}
    (whole, third, ninth), _ = shares_of_model(str(path))
    layers = json.loads((path / "config.json").read_text())["num_hidden_layers"]
    assert whole.weights == open_model(str(path), load_format="dummy").abstract.num_bytes
    assert whole.weights / 3 <= third.weights < whole.weights  # norms are whole on each
    assert whole.kv_cache == 3 * third.kv_cache == 4 * layers * 2 * 3 * 8
    assert ninth.kv_cache == third.kv_cache  # three devices have the same KV head
    for one in (whole, third, ninth):
        said = f"{size(one.weights)} of weights and {size(one.kv_cache)} of KV cache a token"
        assert parts[f"size {one.size}"].startswith(said)


@pytest.mark.slow
def test_it_says_what_the_fullest_of_several_stages_would_hold(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its layers; the first has the embedding, too, the last one the norm and the head."""
    monkeypatch.setattr(diagnosis, "DEVICE_TIMEOUT_S", HANG_S)
    path, _ = tiny_llama(tmp_path / "tiny", num_hidden_layers=5, tie_word_embeddings=False)
    parts = json.loads(run("doctor", "--json", "--model", str(path)).out)["several devices"]
    whole = open_model(str(path), load_format="dummy").abstract
    two, three, four = shares_of_model(str(path))[1]
    assert [each.layers for each in (two, three, four)] == [[3, 2], [2, 2, 1], [1, 1, 2, 1]]
    parts_of_two = [
        open_model(str(path), load_format="dummy", stage=(stage, 2)).abstract.num_bytes
        for stage in range(2)
    ]
    assert two.weights == max(parts_of_two) and sum(parts_of_two) == whole.num_bytes
    each = shares_of_model(str(path))[0][0].kv_cache / 5
    assert two.kv_cache == 3 * each and four.kv_cache == 2 * each
    assert parts["3 stages"] == (
        f"2, 2, 1 layers; at most {size(three.weights)} of weights and {size(three.kv_cache)} of "
        "KV cache a token in one"
    )
    assert "8 stages" not in parts  # of five layers


@pytest.mark.slow
def test_a_model_that_is_nowhere_is_something_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "DEVICE_TIMEOUT_S", HANG_S)
    monkeypatch.setattr("jax_engine.commands.doctor.PARTS", {})
    ended = run("doctor", "--model", "/no/such/model")
    assert ended.status == 1 and "to do:\n  - --model /no/such/model: " in ended.out


def test_without_a_model_it_says_how_to_ask() -> None:
    assert "doctor --model MODEL" in found(diagnosis.several)["sizes"].value
