"""A thousand adapters through eight slots: the host keeps those that it may keep, and no more."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, LoRARequest, SamplingParams
from jax_engine.lora.adapter import Adapter
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.lora.adapters import tensors_of, write_folder
from tests.support.adapted import adapter_of, modules_at

SLOTS, ROUNDS, WARM = 8, 125, 25  # eight new adapters a round
STATM = Path("/proc/self/statm")
ONE = SamplingParams(temperature=0.0, max_tokens=1)
SETTINGS: dict[str, Any] = {
    "skip_tokenizer_init": True, "max_model_len": 48, "max_num_seqs": SLOTS, "block_size": 4,
    "num_gpu_blocks_override": 40, "dtype": "float32", "enable_lora": True, "max_loras": SLOTS,
    "max_lora_rank": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    write(cases()["llama"], folder)
    return folder


def resident_bytes() -> int:
    pages = int(STATM.read_text().split()[1]) if STATM.exists() else 0
    return pages * 4096


@pytest.mark.slow
def test_memory_is_flat_over_a_thousand_adapters(llama: Path, tmp_path: Path) -> None:
    """Adapters that have left are freed: resident memory stays where it was after two hundred.

    In turn eight that the caller has in memory, and eight from files.
    """
    of, names = modules_at(llama)
    llm = LLM(str(llama), **SETTINGS)
    made: list[weakref.ref[Adapter]] = []

    def new(number: int) -> LoRARequest:
        """From files: another version of what lies in one of eight folders."""
        name = f"adapter {number}"
        if number // SLOTS % 2:
            return LoRARequest(name, number + 1, adapter=adapter_of(names, of, number, rank=32))
        folder = write_folder(
            tmp_path / str(number % SLOTS), tensors_of(names, of=of, seed=number, rank=32), r=32
        )
        return LoRARequest(name, number + 1, str(folder))

    def alive() -> int:
        gc.collect()
        return sum(one() is not None for one in made)

    before = size = 0
    for round_ in range(ROUNDS):
        loras = [new(SLOTS * round_ + i) for i in range(SLOTS)]
        llm.generate([[5, 6, 7]] * SLOTS, ONE, lora_request=loras, use_tqdm=False)
        kept = llm.llm_engine._adapters._kept
        assert len(kept) == SLOTS
        made += [weakref.ref(one) for one in kept.values()]
        size = sum(array.nbytes for module in next(iter(kept.values())).modules
                   for array in module.arrays)  # fmt: skip
        del loras, kept
        if round_ == WARM:
            before = resident_bytes()
    assert len({one() for one in made} - {None}) == alive() == SLOTS
    assert len(made) == SLOTS * ROUNDS == 1000
    could_leak = size * SLOTS * (ROUNDS - WARM)
    assert resident_bytes() - before < could_leak / 4
