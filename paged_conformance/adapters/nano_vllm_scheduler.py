"""nano-vllm's scheduler, of any commit; without PyTorch and without a device.

Put a checkout on the path, as `PYTHONPATH`. It has no aborts and no stop tokens of requests, and
its scheduler knows no max_model_len. Where a row starts is decided by its model runner
(`prepare_prefill`, `prepare_decode`); `_start` does the same for each version.
"""

import importlib
import importlib.util
import inspect
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from paged_conformance.adapters import stand_ins
from paged_conformance.scheduler.saying import EOS

_REAL = tuple(
    "nanovllm." + name
    for name in ("engine.scheduler", "engine.sequence", "engine.block_manager", "sampling_params")
)


def _modules() -> tuple[ModuleType, ModuleType]:
    if "nanovllm.engine.scheduler" not in sys.modules:
        missing = [one for one in ("xxhash",) if importlib.util.find_spec(one) is None]
        stand_ins.install(["nanovllm", "torch", "transformers"], _REAL)
        for name in missing:
            sys.modules[name] = _hashes(name)
    names = "nanovllm.engine.scheduler", "nanovllm.engine.sequence"
    return importlib.import_module(names[0]), importlib.import_module(names[1])


def _hashes(name: str) -> ModuleType:
    """In the place of xxhash, if it is not installed: another good hash of 64 bits."""
    import hashlib

    class Hash:
        def __init__(self) -> None:
            self._hash = hashlib.blake2b(digest_size=8)

        def update(self, data: bytes) -> None:
            self._hash.update(data)

        def intdigest(self) -> int:
            return int.from_bytes(self._hash.digest(), "little")

    module = ModuleType(name)
    module.xxh64 = Hash  # type: ignore[attr-defined]
    return module


class NanoVllm:
    def __init__(self, **sizes: Any) -> None:
        scheduler, self._sequences = _modules()
        self._sequences.Sequence.block_size = sizes["block_size"]
        self._sizes = sizes
        config = SimpleNamespace(
            max_num_seqs=sizes["max_num_seqs"], eos=EOS, hf_config=None,
            max_num_batched_tokens=sizes["max_num_batched_tokens"],
            max_model_len=sizes["max_model_len"], num_kvcache_blocks=sizes["num_blocks"],
            kvcache_block_size=sizes["block_size"],
        )  # fmt: skip
        self._scheduler = scheduler.Scheduler(config)
        self._names: dict[int, str] = {}
        self._step: tuple[list[Any], bool] = ([], True)

    def add(self, **asked: Any) -> None:
        params = SimpleNamespace(
            temperature=1.0, max_tokens=asked["max_tokens"], ignore_eos=asked["ignore_eos"]
        )
        sequence = self._sequences.Sequence(list(asked["prompt"]), params)
        self._names[sequence.seq_id] = asked["id"]
        self._scheduler.add(sequence)

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        if self._scheduler.is_finished():  # its engine asks for no step then
            self._step = [], True
            return {"rows": []}
        running = list(self._scheduler.running)
        sequences, prefill = self._scheduler.schedule()
        self._step = sequences, prefill
        waiting = [one for one in self._scheduler.waiting if one in running]
        rows = []
        for one in sequences:
            start = self._start(one, prefill)
            num_tokens = self._num_tokens(one, prefill, start)
            rows.append(
                {
                    "id": self._names[one.seq_id], "start": start, "tokens": num_tokens,
                    "table": list(one.block_table),
                }
            )  # fmt: skip
        return {"rows": rows, "preempted": [{"id": self._names[one.seq_id]} for one in waiting]}

    def _start(self, sequence: Any, prefill: bool) -> int:
        if not prefill:
            return len(sequence) - 1
        if hasattr(sequence, "is_prefill") or not hasattr(sequence, "num_scheduled_tokens"):
            return int(sequence.num_cached_tokens)
        return int(min(sequence.num_cached_tokens, len(sequence) - 1))

    def _num_tokens(self, sequence: Any, prefill: bool, start: int) -> int:
        if not prefill:
            return 1
        if hasattr(sequence, "num_scheduled_tokens"):
            return int(sequence.num_scheduled_tokens)
        return len(sequence) - start  # before prompts were computed in chunks

    def update(self, *, tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
        sequences, prefill = self._step
        if not sequences:
            return []
        drawn = {item["id"]: item["tokens"][0] for item in tokens}
        said = [drawn.get(self._names[one.seq_id], 0) for one in sequences]
        process = self._scheduler.postprocess
        extra = (prefill,) if len(inspect.signature(process).parameters) > 2 else ()
        process(sequences, said, *extra)
        ended = [one for one in sequences if one.is_finished]
        return [
            {"id": self._names.pop(one.seq_id), "tokens": list(one.completion_token_ids)}
            for one in ended
        ]

    def state(self) -> dict[str, Any]:
        held = [*self._scheduler.waiting, *self._scheduler.running]
        return {
            "unfinished": [self._names[one.seq_id] for one in held],
            "free_blocks": len(self._scheduler.block_manager.free_block_ids),
            "num_blocks": self._sizes["num_blocks"],
        }


class _Factory:
    """Makes targets. A block of one token does not occur: its blocks are multiples of 256."""

    @property
    def sizes(self) -> dict[str, int]:
        return {"min_block_size": 2, "max_block_size": 8}

    @property
    def capabilities(self) -> frozenset[str]:
        chunks = hasattr(_modules()[1].Sequence([0]), "num_scheduled_tokens")
        words = {"tables", "prefix_cache", "fcfs", "state", "repeats"}
        return frozenset(words | ({"chunks"} if chunks else set()))

    def __call__(self, **sizes: Any) -> NanoVllm:
        return NanoVllm(**sizes)


scheduler = _Factory()
