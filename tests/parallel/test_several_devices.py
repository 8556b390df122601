"""Runs `on_eight_devices.py` in a process that has eight devices."""

import os
import subprocess
import sys

from tests.meta.trees import ROOT

DEVICES = "--xla_force_host_platform_device_count=8"


def test_models_on_several_devices() -> None:
    """I30 to I37 for tensor_parallel_size 2, 4 and 8; what each device holds."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}".strip()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "tests/parallel/on_eight_devices.py"],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-6000:]
