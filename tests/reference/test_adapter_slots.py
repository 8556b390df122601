"""Adapters in the oracle: who waits for a slot, and what each request is computed with."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reference.adapter_slots import AdapterSlots
from reference.admission import AdmissionError
from reference.blocks import BlockManager
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.scheduler import Scheduler
from reference.sequence import SequenceGroup


def params(**changes: Any) -> Any:
    defaults = dict(
        n=1, best_of=None, max_tokens=3, min_tokens=0, stop_token_ids=None, ignore_eos=True,
        seed=None, temperature=0.0, top_n_sigma=0.0, top_k=0, top_p=1.0, min_p=0.0, logit_bias=None,
        repetition_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0,
    )  # fmt: skip
    return SimpleNamespace(**{**defaults, **changes})


def counting_by(step: int) -> Any:
    """A model that says the number that is `step` more than the last one."""
    return SimpleNamespace(
        forward=lambda token_ids, *rest: token_ids[:, None].astype(float),
        compute_logits=lambda hidden: -abs(np.arange(40.0) - (hidden + step)),
    )


def make_engine(**settings: Any) -> ReferenceEngine:
    cache = KVCache(num_layers=1, num_blocks=24, num_kv_heads=1, block_size=2, head_dim=1)
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 16}
    return ReferenceEngine(
        counting_by(1),
        cache,
        adapted=lambda name: counting_by(len(str(name))),
        **(limits | settings),
    )


def test_the_one_out_of_use_for_longest_goes() -> None:
    slots = AdapterSlots(2)
    assert slots.load("a", []) == (1, True) and slots.load("b", ["a"]) == (2, True)
    assert slots.slot_of("b") == 2 and slots.slot_of("c") == slots.slot_of(None) == 0
    for one in ("a", "b", "a", None, "c"):
        slots.note_left(one)
    assert slots.has_room_for("c", ["a"]) and not slots.has_room_for("c", ["a", "b"])
    assert slots.has_room_for("a", ["a", "b"]) and slots.has_room_for(None, ["a", "b"])
    assert slots.load("c", []) == (2, True)


@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
def test_a_group_waits_for_a_slot_and_is_not_passed(scheduling: Any) -> None:
    scheduler = Scheduler(
        BlockManager(2, 40), max_num_seqs=4, max_num_batched_tokens=16, max_model_len=16,
        scheduling=scheduling, max_loras=1,
    )  # fmt: skip
    for name, adapter in (("1", "a"), ("2", "b"), ("3", None)):
        group = SequenceGroup(name, [1, 2], params(max_tokens=1), adapter=adapter)
        scheduler.add_group(group)
    loads = []
    while scheduler.has_unfinished():
        output = scheduler.schedule()
        loads.append((output.adapters, [entry.group.request_id for entry in output.scheduled]))
        scheduler.update({entry.seq.seq_id: [5] for entry in output.scheduled})
    assert loads == [([(1, "a")], ["1"]), ([(1, "b")], ["2", "3"])]
    assert scheduler.slots.names == ["b"]


def test_who_ends_while_it_waits_used_no_slot() -> None:
    """Its adapter is in no slot, and running groups keep theirs."""
    scheduler = Scheduler(
        BlockManager(2, 40), max_num_seqs=4, max_num_batched_tokens=16, max_model_len=16,
        max_loras=2,
    )  # fmt: skip
    for name, adapter in (("1", "a"), ("2", "b"), ("3", "c")):
        group = SequenceGroup(name, [1, 2], params(max_tokens=2), adapter=adapter)
        scheduler.add_group(group)
    output = scheduler.schedule()
    assert output.adapters == [(1, "a"), (2, "b")]
    assert scheduler.abort("3")
    scheduler.update({entry.seq.seq_id: [5] for entry in output.scheduled})
    assert scheduler.schedule().adapters == []
    assert [group.adapter_slot for group in scheduler.groups.values()] == [1, 2]


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_preempted_group_has_no_slot(mode: Any) -> None:
    scheduler = Scheduler(
        BlockManager(2, 6, 6), max_num_seqs=4, max_num_batched_tokens=16, max_model_len=10,
        max_loras=2, preemption_mode=mode,
    )  # fmt: skip
    groups = [
        SequenceGroup(name, [1, 2, 3], params(max_tokens=7), adapter=name) for name in ("a", "b")
    ]
    for group in groups:
        scheduler.add_group(group)
    preempted: list[Any] = []
    while scheduler.has_unfinished():
        output = scheduler.schedule()
        if output.preempted:
            preempted += output.preempted
            assert [group.adapter_slot for group in groups] == [1, 0]
        scheduler.update({entry.seq.seq_id: [5] for entry in output.scheduled if entry.num_samples})
    assert preempted == [("b", mode)]


def test_each_request_is_computed_with_its_own_adapter() -> None:
    """Three models in one step; the model alone counts by one."""
    engine = make_engine(max_loras=2)
    for name, adapter in (("x", "by3"), ("y", None), ("z", "by 04"), ("w", "by3")):
        engine.add_request(name, [1, 2], params(max_tokens=3), adapter=adapter)
    assert {group.request_id: group.seqs[0].output_token_ids for group in engine.run()} == {
        "x": [5, 8, 11], "y": [3, 4, 5], "z": [7, 12, 17], "w": [5, 8, 11]
    }  # fmt: skip


def test_prompts_are_scored_with_the_adapter() -> None:
    engine = make_engine(max_loras=1)
    engine.add_request("x", [1, 4, 2], params(max_tokens=1, prompt_logprobs=0), adapter="by3")
    [group] = engine.run()
    rows = group.prompt_logprobs
    assert rows is not None and rows[1] is not None and rows[2] is not None
    assert [int(row.argmax()) for row in rows[1:]] == [4, 7]  # type: ignore[union-attr]


def test_no_prefix_is_shared_across_adapters() -> None:
    engine = make_engine(max_loras=2, enable_prefix_caching=True)
    found = []
    for i, adapter in enumerate(["a", None, "b", "a", None]):
        engine.add_request(str(i), [1, 2, 3, 4, 5], params(max_tokens=1), adapter=adapter)
        [group] = engine.run()
        found.append(group.num_cached_tokens)
    assert found == [0, 0, 0, 4, 4]


def test_without_slots_an_adapter_is_refused() -> None:
    with pytest.raises(AdmissionError, match="adapters = 1, the limit is 0"):
        make_engine().add_request("x", [1], params(), adapter="a")
    with pytest.raises(ValueError, match="max_loras=-1 must be at least 0"):
        make_engine(max_loras=-1)
