"""Ray on this machine, for tests: small, patient, and gone at the end."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.processes.test_ray_actors import below
from tests.support.patience import HANG_S, until
from tests.support.tiny_llama import byte_llama

# Ray gives up on itself after half a minute or so, which a busy machine may need to start it.
PATIENT = {
    name: str(int(HANG_S))
    for name in (
        "RAY_raylet_start_wait_time_s",
        "RAY_worker_register_timeout_seconds",
        "RAY_gcs_server_request_timeout_seconds",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S",
    )
}
PATIENT["RAY_agent_register_timeout_ms"] = str(int(1000 * HANG_S))
QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
OF_RAY: dict[str, Any] = {
    "num_cpus": 8,
    "include_dashboard": False,
    "object_store_memory": 100 << 20,
    "log_to_driver": False,
    "configure_logging": False,
}
# A tiny model that speaks bytes, whose blocks are short enough for prompts of a test to share some.
ENGINE: dict[str, Any] = {
    "max_model_len": 256,
    "max_num_seqs": 8,
    "block_size": 16,
    "num_gpu_blocks_override": 100,
    "dtype": "float32",
    "warmup": False,
}


def alive(pids: list[int]) -> list[int]:
    """Those of the processes that have not ended."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


@pytest.fixture(scope="package")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(byte_llama(tmp_path_factory.mktemp("models") / "bytes", max_position_embeddings=512))


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    """Ray, which ends with all its processes."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**PATIENT, **QUIET}.items():
            patch.setenv(name, value)
        for user in ("api", "client"):  # a constant, which no variable sets
            patch.setattr(f"ray.serve._private.{user}.HTTP_PROXY_TIMEOUT", HANG_S)
        ray.init(**OF_RAY)
        every = below(os.getpid())
        yield ray
        every += below(os.getpid())
        ray.shutdown()
        until(lambda: not alive(every), "the end of Ray's processes")
