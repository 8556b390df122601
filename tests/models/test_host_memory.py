"""Too little memory: one typed error with numbers, whoever noticed it."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jax_engine import host_memory
from jax_engine.errors import OutOfMemoryError
from jax_engine.host_memory import allocating, check_fits, ram_bytes
from tests.golden import tiny_checkpoints as tiny


def of_numpy() -> None:
    np.empty(1 << 60, np.uint8)


def of_the_system() -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def of_xla() -> None:
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes.")


@pytest.mark.parametrize("fails", [of_numpy, of_the_system, of_xla])
def test_every_kind_of_failure_is_one_error(fails) -> None:
    words = r"3\.00 GiB for the weights.*RAM [\d.]+ GiB"
    with pytest.raises(OutOfMemoryError, match=words), allocating("the weights", 3 << 30):
        fails()
    with pytest.raises(OutOfMemoryError, match="inner"), allocating("outer"):
        raise OutOfMemoryError("inner")


def test_other_errors_pass() -> None:
    with pytest.raises(FileNotFoundError), allocating("the weights"):
        raise FileNotFoundError("x")
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), allocating("the weights"):
        raise jax.errors.JaxRuntimeError("INTERNAL: x")


def test_what_cannot_fit_is_not_tried() -> None:
    check_fits("a little", 1 << 20)
    with pytest.raises(OutOfMemoryError, match=r"1048576\.00 GiB for a lot"):
        check_fits("a lot", 1 << 50)


def test_limits_of_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 gives bytes or "max", version 1 a number beyond all memory; the lowest counts."""
    whole = ram_bytes()
    monkeypatch.setattr(host_memory, "CGROUPS", tmp_path)
    assert host_memory._cgroup_limit() is None
    (tmp_path / "memory.max").write_text("max\n")
    assert host_memory._cgroup_limit() is None and ram_bytes() == whole
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    assert ram_bytes() == whole
    (tmp_path / "memory.max").write_text("123456789\n")
    assert ram_bytes() == 123456789
    with pytest.raises(OutOfMemoryError, match=r"the container's limit 0\.11 GiB"):
        check_fits("more", 123456790)


@pytest.mark.slow
def test_a_limit_of_addresses(tmp_path: Path) -> None:
    """`ulimit -v` in a process of its own: too little for the weights."""
    config = tiny.CONFIGS["plain"] | {"vocab_size": 8_000_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code = """if True:
        import jax, resource, sys
        from jax_engine.errors import OutOfMemoryError
        from jax_engine.host_memory import _address_space
        from jax_engine.models.model_loader import load_model
        jax.numpy.zeros(1).block_until_ready()  # XLA's threads have their stacks before
        limit = _address_space() + (600 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            load_model(sys.argv[1], load_format="dummy")
        except OutOfMemoryError as error:
            print(error)
    """
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1.91 GiB for 5120" in done.stdout and "ulimit -v" in done.stdout
