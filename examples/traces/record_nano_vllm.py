"""Records nano-vllm-fork-*.json here: nano-vllm's own scheduler, and a rule that draws tokens.

    python record_nano_vllm.py OUTPUT

It needs the package's files, NumPy and xxhash. Its scheduler and block manager need no PyTorch, but
the package's `__init__` does: so the package is entered without it.
"""

import sys
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

BLOCK, STEPS = 4, 60
SCENES = {
    "roomy": (16, [([1, 2, 3, 4, 5, 6, 7], 6), ([1, 2, 3, 4, 9, 9], 5), ([20, 21, 22], 8)],
              "Three requests, two of which begin alike; room for all."),
    "tight": (7, [([1, 2, 3, 4, 5, 6, 7], 9), ([11, 12, 13, 14, 15, 16], 9), ([20, 21, 22], 8)],
              "Three requests on seven blocks."),
}  # fmt: skip
"""Blocks; of each request its prompt and max_tokens."""


def enter() -> None:
    """Makes the modules of the package importable one by one."""
    spec = find_spec("nanovllm")
    assert spec is not None and spec.submodule_search_locations is not None
    package, config = ModuleType("nanovllm"), ModuleType("nanovllm.config")
    package.__path__ = list(spec.submodule_search_locations)
    config.Config = object  # type: ignore[attr-defined]
    sys.modules |= {"nanovllm": package, "nanovllm.config": config}


def record(blocks: int, requests: Any, about: str) -> Any:
    """Steps until all have ended, or the scheduler raises."""
    from nano_vllm import Tracer
    from nanovllm.engine.scheduler import Scheduler
    from nanovllm.engine.sequence import Sequence
    from nanovllm.sampling_params import SamplingParams

    Sequence.block_size, Sequence.counter = BLOCK, count()
    scheduler = Scheduler(SimpleNamespace(
        max_num_seqs=8, max_num_batched_tokens=64, eos=0, num_kvcache_blocks=blocks,
        kvcache_block_size=BLOCK,
    ))  # fmt: skip
    tracer = Tracer(scheduler, "nano-vllm-fork", about)
    for prompt, longest in requests:
        scheduler.add(Sequence(prompt, SamplingParams(max_tokens=longest, ignore_eos=True)))
    for step in range(1, STEPS):
        if scheduler.is_finished():
            break
        try:
            seqs, _ = scheduler.schedule()
        except IndexError as error:
            print(f"step {step}: IndexError: {error}")
            break
        scheduler.postprocess(seqs, [100 + (7 * step + 3 * i) % 50 for i in range(len(seqs))])
    return tracer


if __name__ == "__main__":
    enter()
    for name, (blocks, requests, about) in SCENES.items():
        record(blocks, requests, about).save(str(Path(sys.argv[1]) / f"nano-vllm-fork-{name}.json"))
