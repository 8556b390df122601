"""The peak memory of a process that shares a model is its share of the weights, and a little."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from jax_engine import LLM
from jax_engine.processes import runner_child
from reference.transformer import weight_shapes
from tests.support.devices import for_cpu_kernels
from tests.support.patience import HANG_S
from tests.support.tiny_llama import save_checkpoint, tiny_config, tiny_llama

pytestmark = [
    pytest.mark.slow,
    for_cpu_kernels("each device is a process of a CPU"),
]
LOOK_S = 0.002
SMALL: dict[str, Any] = {
    "skip_tokenizer_init": True, "max_model_len": 32, "max_num_seqs": 2, "block_size": 8,
    "num_gpu_blocks_override": 8, "max_num_batched_tokens": 16, "dtype": "float32",
    "swap_space": 0, "distributed_executor_backend": "mp",
}  # fmt: skip
WIDE = {
    "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 24, "head_dim": 32,
    "num_attention_heads": 16, "num_key_value_heads": 8,
}  # fmt: skip


def anonymous(pid: int) -> int:
    """The memory of a process, in bytes, without pages of files; 0 if there is no such process."""
    with suppress(OSError):
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return 1024 * int(found[1]) if found else 0
    return 0


@contextmanager
def watched() -> Iterator[dict[int, int]]:
    """The most memory in which each process of a model that starts meanwhile was seen, by pid."""
    most, ended = dict[int, int](), threading.Event()
    start = runner_child.start_child

    def started(*given: Any, **more: Any) -> Any:
        child = start(*given, **more)
        most[child.pid] = 0
        return child

    def look() -> None:
        while not ended.wait(LOOK_S):
            for pid in list(most):
                most[pid] = max(most[pid], anonymous(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        with patch.object(runner_child, "start_child", started):
            yield most
    finally:
        ended.set()
        thread.join()


def peaks(model: Path, size: int) -> list[int]:
    """The most memory that each process was seen to have until its weights are there, in bytes."""
    with watched() as most:
        llm = LLM(str(model), **SMALL, tensor_parallel_size=size)
        client = llm.llm_engine._client
        assert client is not None
        client.close()
    return list(most.values())


@pytest.mark.slow
def test_the_peak_of_a_process_is_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the weights, one layer's matrix on its way, and what compiles beside: below 85 %.

    A process that held all of them, or its share twice, would need as much as they are. Counted is
    what is above a process with hardly any weights, without pages of files, which the system takes
    back when it needs them.
    """
    for name in ("SILENCE_S", "START_S", "STILL_S"):
        monkeypatch.setattr(runner_child, name, HANG_S)
    config = tiny_config(**WIDE)
    weights = {
        name: np.full(shape, 0.01, np.float32) for name, shape in weight_shapes(config).items()
    }
    total = sum(one.nbytes for one in weights.values())
    wide = save_checkpoint(tmp_path / "wide", config, weights)
    del weights
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    tiny, _ = tiny_llama(tmp_path / "tiny", **heads)
    (whole,), shares = (
        [peak - min(least) for peak in most]
        for least, most in ((peaks(tiny, size), peaks(wide, size)) for size in (1, 2))
    )
    assert total > 360e6 and len(shares) == 2
    assert whole > 0.95 * total  # so the measure sees weights
    assert all(peak < 0.85 * total for peak in shares)
