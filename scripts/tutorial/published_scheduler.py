"""vLLM 0.2.0's own scheduler on the four requests of the tutorial that hang it.

    pip download vllm==0.2.0 --no-deps --only-binary :all: --python-version 310 \
        --platform manylinux1_x86_64
    python -m scripts.tutorial.published_scheduler vllm-0.2.0-cp310-cp310-manylinux1_x86_64.whl

Only its scheduler, block manager and sequences are imported, from the wheel. What these import of
configurations, sampling parameters and PyTorch is replaced: none of it decides anything here.
"""

import argparse
import enum
import importlib
import logging
import sys
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

CASES = {
    "too many samples": ({"prompt_len": 3, "max_tokens": 4, "n": 5}, 20, 20),
    "prompt larger than the pool": ({"prompt_len": 13, "max_tokens": 2}, 6, 6),
    "outgrows the pool": ({"prompt_len": 5, "max_tokens": 20}, 4, 4),
    "cannot come back": ({"prompt_len": 4, "max_tokens": 9, "n": 2}, 8, 16),
}
"""As in docs/tutorial/the-oracle.md: a request, GPU blocks, CPU blocks."""
B, LIMIT, PATIENCE = 2, 16, 100
NUMBERS = count()


class Device(enum.Enum):
    GPU = 1
    CPU = 2


def load(wheel: str) -> tuple[Any, Any]:
    """vLLM's modules of the scheduler and of sequences, with stand-ins for what they import."""
    _module("vllm", __path__=[f"{wheel}/vllm"])
    _module("vllm.core", __path__=[f"{wheel}/vllm/core"])
    _module("vllm.config", CacheConfig=object, SchedulerConfig=object)
    _module("vllm.logger", init_logger=logging.getLogger)
    _module("vllm.utils", Device=Device)
    _module("vllm.sampling_params", SamplingParams=object)
    _module("torch", Tensor=object)
    modules = [importlib.import_module(f"vllm.{name}") for name in ("core.scheduler", "sequence")]
    return modules[0], modules[1]


def _module(name: str, **contents: object) -> None:
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update(contents)


def request(sequence: Any, name: str, prompt_len: int, max_tokens: int, n: int = 1) -> Any:
    params = SimpleNamespace(n=n, best_of=n, max_tokens=max_tokens, use_beam_search=False)
    first = sequence.Sequence(next(NUMBERS), "", list(range(prompt_len)), B)
    return sequence.SequenceGroup(name, [first], params, float(next(NUMBERS)))


def hangs(scheduler: Any, status: Any) -> bool:
    """Steps until all is done, or until so many steps in a row computed nothing."""
    empty = 0
    while scheduler.has_unfinished_seqs() and empty < PATIENCE:
        _, output = scheduler.schedule()
        empty = 0 if output.scheduled_seq_groups else empty + 1
        for group in output.scheduled_seq_groups:
            if output.prompt_run:
                _fork(scheduler, group)
            for seq in group.get_seqs(status=status.RUNNING):
                seq.append_token_id(7, {7: 0.0})
                if seq.get_output_len() >= group.sampling_params.max_tokens:
                    seq.status = status.FINISHED_LENGTH_CAPPED
                    scheduler.free_seq(seq)
        scheduler.free_finished_seq_groups()
    return empty == PATIENCE


def _fork(scheduler: Any, group: Any) -> None:
    """The samples of a request begin behind its prompt, as vLLM's engine has it."""
    first = group.get_seqs()[0]
    for _ in range(group.sampling_params.best_of - group.num_seqs()):
        child = first.fork(next(NUMBERS))
        group.add(child)
        scheduler.fork_seq(first, child)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.tutorial.published_scheduler")
    parser.add_argument("wheel", help="of vLLM 0.2.0")
    core, sequence = load(parser.parse_args().wheel)
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": LIMIT, "max_model_len": LIMIT}
    for title, (asked, gpu, cpu) in CASES.items():
        pool = {"block_size": B, "num_gpu_blocks": gpu, "num_cpu_blocks": cpu}
        memory = SimpleNamespace(**pool, sliding_window=None)
        scheduler = core.Scheduler(SimpleNamespace(**limits), memory)
        scheduler.add_seq_group(request(sequence, "large", **asked))
        scheduler.add_seq_group(request(sequence, "behind it", 1, 1))
        verdict = "HANGS" if hangs(scheduler, sequence.SequenceStatus) else "finishes"
        free = scheduler.block_manager.get_num_free_gpu_blocks()
        print(f"{title}: {verdict}; {free} of {gpu} blocks are free")


if __name__ == "__main__":
    main()
