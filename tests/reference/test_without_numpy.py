"""The controller runs where there is no NumPy, as in a browser: it deals in tokens and blocks."""

import subprocess
import sys
import textwrap

from tests.meta.trees import ROOT
from tests.support.patience import HANG_S

CONTROLLER = (
    "admission", "allocator", "beam_search", "blocks", "prefix_cache", "sampling_options",
    "scheduler", "scheduler_config", "scheduler_sosp", "scheduler_state", "scheduler_unified",
    "sequence", "speculation",
)  # fmt: skip

BLOCKED = """
import sys
for name in ("numpy", "jaxtyping", "jax"):
    sys.modules[name] = None
"""

TWO_STEPS = """
from types import SimpleNamespace
from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.sequence import SequenceGroup
blocks = BlockManager(block_size=4, num_gpu_blocks=6, num_cpu_blocks=0)
scheduler = Scheduler(blocks, max_num_seqs=8, max_num_batched_tokens=32, max_model_len=32)
params = SimpleNamespace(n=2, best_of=None, max_tokens=3, use_beam_search=False, min_tokens=0,
                         stop_token_ids=[], ignore_eos=True)
scheduler.add_group(SequenceGroup("A", [5, 6, 7, 8, 9, 10], params))
for tokens in ([11, 12], [13], [14]):
    output = scheduler.schedule()
    print(output.num_batched_tokens, output.blocks_to_copy)
    scheduler.update({entry.seq.seq_id: tokens * entry.num_samples if len(tokens) == 1 else tokens
                      for entry in output.scheduled})
print(scheduler.has_unfinished(), len(blocks.gpu.free_blocks))
"""


def without_numpy(script: str) -> str:
    command = [sys.executable, "-c", BLOCKED + textwrap.dedent(script)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_module_of_the_controller_imports() -> None:
    without_numpy("".join(f"import reference.{name}\n" for name in CONTROLLER))


def test_two_samples_are_served_and_copied_on_write() -> None:
    steps = without_numpy(TWO_STEPS).splitlines()
    # Blocks are handed out from the last: the prompt gets 5 and 4, and 4, not full, is copied to 3.
    assert steps == ["6 []", "2 [(4, 3)]", "2 []", "False 6"]
