"""How much memory it takes to load the default model in its codes: little more than these."""

import subprocess
import sys
from pathlib import Path

import pytest

from jax_engine.models.checkpoints.default_model import default_model_path
from tests.meta.trees import ROOT
from tests.models.test_gguf_codes import write_quantised

# Pages of the file are not counted: the system takes them back when it needs memory.
LOAD = """
import sys, threading
from pathlib import Path
from jax_engine.models.model_loader import load_model

def taken():
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return sum(1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))

load_model(sys.argv[1])  # what any model needs: compiled kernels, threads
before, peak, done = taken(), 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, taken())
watching = threading.Thread(target=watch)
watching.start()
model = load_model(sys.argv[2])
done.set()
watching.join()
print((peak - before) / model.num_bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="another system does not say")
def test_the_peak_is_near_the_size_of_the_codes(tmp_path: Path) -> None:
    write_quantised(tmp_path / "m.gguf", ("Q4_1", "Q8_0"))
    files = map(str, (tmp_path / "m.gguf", default_model_path()))
    command = [sys.executable, "-c", LOAD, *files]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert 0.8 < float(ended.stdout) < 1.3
