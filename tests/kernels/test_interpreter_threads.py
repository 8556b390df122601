"""Threads of XLA that an interpreted Mosaic kernel takes: with too few it ends with an error."""

import os
import subprocess
import sys

import pytest

from pallas_kernels.mosaic import plgpu
from tests.support.patience import HANG_S

# Counts the threads that XLA has made, by their names.
COUNT = """
import pathlib, jax
from pallas_kernels.device import pool_threads
jax.devices()
names = [task.read_text().strip() for task in pathlib.Path("/proc/self/task").glob("*/comm")]
print(pool_threads(), names.count("tf_XLAEigen"))
"""
# One sequence of 40 tokens in two tiles, which two warpgroups and one that copies attend to.
ATTEND = """
import jax.numpy as jnp
from pallas_kernels import paged_attention
cache, q = jnp.ones((1, 2, 4, 1, 16, 64), jnp.bfloat16), jnp.ones((40, 4, 64), jnp.bfloat16)
batch = jnp.arange(1, 4)[None], jnp.array([40]), jnp.array([0, 40])
print(bool((paged_attention(q, cache, *batch, layer=0, scale=1.0, backend="mosaic") == 1).all()))
"""


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    others = {k: v for k, v in os.environ.items() if k not in ("NPROC", "PJRT_NPROC")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=others | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NPROC": "5"},
        {"NPROC": "0"},
        {"NPROC": "many"},
        {"NPROC": "2", "PJRT_NPROC": "6"},
        {"NPROC": "2", "XLA_FLAGS": "--xla_force_host_platform_device_count=7"},
    ],
    ids=str,
)
def test_threads_are_counted_as_xla_counts_them(environment: dict[str, str]) -> None:
    ended = python(COUNT, **environment)
    counted, made = ended.stdout.split() or [ended.stderr, None]
    assert counted == made


@pytest.mark.slow
def test_as_many_threads_as_warpgroups_are_enough() -> None:
    ended = python(ATTEND, NPROC="3")
    assert ended.stdout.strip() == "True", ended.stderr


@pytest.mark.slow
def test_one_thread_too_few_is_said_in_words() -> None:
    ended = python(ATTEND, NPROC="2")
    said = "ValueError: interpreting this Mosaic kernel takes 3 threads of XLA, which has 2 in this"
    assert ended.returncode == 1 and said in ended.stderr
    assert "set the environment variable NPROC=16 before JAX starts" in ended.stderr


def test_kernels_of_one_warpgroup_and_compiled_ones_need_no_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plgpu, "pool_threads", lambda: 0)
    plgpu.kernel(lambda: None, interpret=True)
    plgpu.kernel(lambda: None, interpret=False, num_threads=4, thread_name="warpgroup")
