"""The hooks of examples/traces, on doubles: the oracle under the names that the other engines use.

What they have in common with the real ones was read in vLLM 0.33.0 and nano-vllm-fork 20260210; the
traces in examples/traces/ come from those.
"""

import importlib
import importlib.metadata
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from playground.check_trace import check
from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.sequence import Sequence, SequenceGroup
from tests.meta.trees import ROOT

PROMPTS = {"a": [1, 2, 3, 4, 5, 6, 7], "b": [1, 2, 3, 4, 9, 9], "c": [20, 21, 22]}


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """By name, the modules; there is neither vLLM nor nano-vllm here."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "traces"))
    there = ModuleType("vllm")
    there.__version__ = "0.33.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", there)
    known = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "1" if name == "nano-vllm" else known(name)
    )
    yield importlib.import_module
    for name in ("vllm_v1", "nano_vllm"):
        sys.modules.pop(name, None)


class Oracle:
    """What both doubles are made of: recompute only, and one sequence a request."""

    def __init__(self, blocks: int, **settings: Any) -> None:
        self.manager = BlockManager(4, blocks, watermark=0, enable_prefix_caching=True)
        self.oracle = Scheduler(
            self.manager, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=64,
            preemption_mode="recompute", **settings,
        )  # fmt: skip

    def group(self, name: str, length: int) -> SequenceGroup:
        params: Any = SimpleNamespace(
            n=1, best_of=None, max_tokens=length, min_tokens=0, stop_token_ids=[], ignore_eos=True
        )
        group = SequenceGroup(name, PROMPTS[name], params)
        self.oracle.add_group(group)
        return group


class V1Request:
    """As `vllm.v1.request.Request` names it. A step's tokens are counted when it is planned."""

    def __init__(self, group: SequenceGroup) -> None:
        self.request_id, self.prompt_token_ids = group.request_id, PROMPTS[group.request_id]
        self.seq: Sequence = group.leader
        self.ahead = 0

    @property
    def num_computed_tokens(self) -> int:
        return self.seq.num_computed_tokens + self.ahead

    @property
    def num_tokens(self) -> int:
        return len(self.seq.token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.seq.output_token_ids

    def is_finished(self) -> bool:
        return self.seq.finished


class V1(Oracle):
    """As `vllm.v1.core.sched.scheduler.Scheduler` names it, with its null block 0."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self.requests: dict[str, V1Request] = {}
        self.policy = SimpleNamespace(value="fcfs")
        self.block_size, self.max_num_running_reqs, self.max_num_scheduled_tokens = 4, 8, 64
        self.kv_cache_manager = SimpleNamespace(block_pool=self, get_block_ids=self._block_ids)
        self.free_block_queue = SimpleNamespace(get_all_free_blocks=self._free)
        self.null_block, self.num_gpu_blocks = SimpleNamespace(block_id=0), blocks + 1

    def _block_ids(self, name: str) -> tuple[list[int]]:
        return ([1 + b for b in self.manager.block_table(self.requests[name].seq.seq_id)],)

    def _free(self) -> list[Any]:
        return [SimpleNamespace(block_id=1 + block) for block in self.manager.gpu.free_blocks]

    @property
    def blocks(self) -> list[Any]:
        known = {1 + entry.block for entry in self.manager.prefix_cache.entries}
        counts = [0, *self.manager.gpu.ref_counts]
        return [
            SimpleNamespace(block_id=i, ref_cnt=count, block_hash=i if i in known else None)
            for i, count in enumerate(counts)
        ]

    @property
    def running(self) -> list[V1Request]:
        return [self.requests[group.request_id] for group in self.oracle.running]

    @property
    def waiting(self) -> list[V1Request]:
        return [self.requests[group.request_id] for group in self.oracle.waiting]

    def has_unfinished_requests(self) -> bool:
        return self.oracle.has_unfinished()

    def add_request(self, request: V1Request) -> None:
        self.requests[request.request_id] = request

    def schedule(self, throttle_prefills: bool = False) -> Any:
        output = self.oracle.schedule()
        numbers = {one.group.request_id: one.num_tokens for one in output.scheduled}
        for name, number in numbers.items():
            self.requests[name].ahead = number
        return SimpleNamespace(
            num_scheduled_tokens=numbers, scheduled_spec_decode_tokens={}, preempted_req_ids=set()
        )

    def update_from_output(self, output: Any, sampled: dict[str, int]) -> None:
        for name in output.num_scheduled_tokens:
            self.requests[name].ahead = 0
        ids = {name: self.requests[name].seq.seq_id for name in output.num_scheduled_tokens}
        self.oracle.update({ids[name]: [token] for name, token in sampled.items()})


@pytest.mark.parametrize("blocks", [5, 16])
def test_the_hook_for_vllm_v1_writes_what_its_scheduler_does(hooks: Any, blocks: int) -> None:
    scheduler = V1(blocks)
    tracer = hooks("vllm_v1").Tracer(scheduler, "a double")
    for name in PROMPTS:
        scheduler.add_request(V1Request(scheduler.group(name, 6)))
    for step in range(60):
        if not scheduler.has_unfinished_requests():
            break
        output = scheduler.schedule()
        drawn = {name: 100 + step for name in output.num_scheduled_tokens}
        scheduler.update_from_output(output, drawn)
    trace = tracer.trace()
    holds(trace, blocks < 16)
    assert trace["engine"] == {"name": "vLLM", "version": "0.33.0"}
    assert trace["reserved_blocks"] == [0]


class NanoSequence:
    """As `nanovllm.engine.sequence.Sequence` names it."""

    def __init__(self, group: SequenceGroup, manager: BlockManager) -> None:
        self.seq, self.seq_id, self.manager = group.leader, group.request_id, manager
        self.prompt_token_ids = PROMPTS[group.request_id]
        self.num_cached_tokens = 0

    def __len__(self) -> int:
        return len(self.seq.token_ids)

    @property
    def token_ids(self) -> list[int]:
        return self.seq.token_ids

    @property
    def block_table(self) -> list[int]:
        return self.manager.block_table(self.seq.seq_id)

    @property
    def is_finished(self) -> bool:
        return self.seq.finished


class Nano(Oracle):
    """As `nanovllm.engine.scheduler.Scheduler` names it: a step has prompts, or none."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks, enable_chunked_prefill=False)
        self.seqs: dict[str, NanoSequence] = {}
        self.max_num_seqs, self.max_num_batched_tokens, self.block_size = 8, 64, 4
        self.block_manager = self

    @property
    def blocks(self) -> list[Any]:
        return [SimpleNamespace(ref_count=count) for count in self.manager.gpu.ref_counts]

    @property
    def free_block_ids(self) -> list[int]:
        return self.manager.gpu.free_blocks

    @property
    def hash_to_block_id(self) -> dict[int, int]:
        return {entry.hash: entry.block for entry in self.manager.prefix_cache.entries}

    @property
    def running(self) -> list[NanoSequence]:
        return [self.seqs[group.request_id] for group in self.oracle.running]

    @property
    def waiting(self) -> list[NanoSequence]:
        return [self.seqs[group.request_id] for group in self.oracle.waiting]

    def is_finished(self) -> bool:
        return not self.oracle.has_unfinished()

    def add(self, seq: NanoSequence) -> None:
        self.seqs[seq.seq_id] = seq

    def schedule(self) -> tuple[list[NanoSequence], bool]:
        output = self.oracle.schedule()
        seqs = [self.seqs[one.group.request_id] for one in output.scheduled]
        for one, seq in zip(output.scheduled, seqs, strict=True):
            seq.num_cached_tokens = one.start
        return seqs, True

    def postprocess(self, seqs: list[NanoSequence], token_ids: list[int]) -> None:
        pairs = zip(seqs, token_ids, strict=True)
        self.oracle.update({seq.seq.seq_id: [token] for seq, token in pairs})


@pytest.mark.parametrize("blocks", [5, 16])
def test_the_hook_for_nano_vllm_writes_what_its_scheduler_does(hooks: Any, blocks: int) -> None:
    scheduler = Nano(blocks)
    tracer = hooks("nano_vllm").Tracer(scheduler)
    for name in PROMPTS:
        scheduler.add(NanoSequence(scheduler.group(name, 6), scheduler.manager))
    for step in range(60):
        if scheduler.is_finished():
            break
        seqs, _ = scheduler.schedule()
        scheduler.postprocess(seqs, [100 + step] * len(seqs))
    holds(tracer.trace(), blocks < 16)


def holds(trace: dict[str, Any], preempts: bool) -> None:
    """All that such an engine can show is checked and holds; with too few blocks, I19 too."""
    found = check(trace)
    assert "error" not in found, found
    assert found["fell"] == [] and trace["complete"]
    shows = {"I1", "I2", "I3", "I4", "I5", "I6", "I9", "I10", "I13", "I16", "I17", "I18", "I20"}
    assert shows <= set(found["checked"])
    preempted = [name for step in trace["steps"] for name in step["preempted"]]
    assert bool(preempted) == preempts and ("I19" in found["checked"]) == preempts
    ends = {name: len(tokens) for step in trace["steps"] for name, tokens in step["drawn"].items()}
    assert set(ends) == set(PROMPTS)
