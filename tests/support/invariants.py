"""The invariants of SEMANTICS 2.6 that can be asked of any block manager and any scheduler.

Each function asserts some of I1 to I23 and says which; they use nothing but the public attributes
that oracle and engine have in common.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any


def blocks_for(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


def check_blocks(
    blocks: Any, seq_ids: Iterable[int], num_gpu_blocks: int, num_cpu_blocks: int
) -> None:
    """I1: references = occurrences in tables. I3: used + free = pool. I4: no block twice in a
    table. I5: a table lives on one device, and an empty table on none."""
    held: dict[str, Counter[int]] = {"gpu": Counter(), "cpu": Counter()}
    for seq_id in seq_ids:
        table, device = blocks.block_table(seq_id), blocks.device(seq_id)
        assert len(set(table)) == len(table), f"I4: sequence {seq_id} has {table}"
        assert (device is None) == (not table), f"I5: sequence {seq_id} is on {device}"
        if device is not None:
            held[device].update(table)
    pools = (
        ("gpu", num_gpu_blocks, blocks.num_free_gpu_blocks),
        ("cpu", num_cpu_blocks, blocks.num_free_cpu_blocks),
    )
    for device, num_blocks, num_free in pools:
        refs = [blocks.ref_count(block, device) for block in range(num_blocks)]
        assert refs == [held[device][block] for block in range(num_blocks)], f"I1 on {device}"
        assert num_free + sum(ref > 0 for ref in refs) == num_blocks, f"I3 on {device}"


def check_quiescence(blocks: Any, num_gpu_blocks: int, num_cpu_blocks: int) -> None:
    """I9: when nothing is left to do, every block of both pools is free."""
    assert blocks.num_free_gpu_blocks == num_gpu_blocks, "I9 on gpu"
    assert blocks.num_free_cpu_blocks == num_cpu_blocks, "I9 on cpu"


def check_queues(scheduler: Any, blocks: Any, key: Any, max_num_seqs: int) -> None:
    """I5: status and device agree. I16: each unfinished group is in one queue, ids are unique.
    I17: queues are in the order of service. I18: reserved sequences fit max_num_seqs."""
    queues = {
        "WAITING": list(scheduler.waiting),
        "RUNNING": list(scheduler.running),
        "SWAPPED": list(scheduler.swapped),
    }
    devices = {"WAITING": {None}, "RUNNING": {"gpu", None}, "SWAPPED": {"cpu", None}}
    groups = [group for queue in queues.values() for group in queue]
    names = [group.request_id for group in groups]
    assert len(set(names)) == len(names), f"I16: {names}"
    seq_ids = [seq.seq_id for group in groups for seq in group.seqs]
    assert len(set(seq_ids)) == len(seq_ids), f"I16: {seq_ids}"
    for status, queue in queues.items():
        assert [key(group) for group in queue] == sorted(key(group) for group in queue), "I17"
        for group in queue:
            unfinished = [seq for seq in group.seqs if seq.finish_reason is None]
            assert unfinished, f"I16: {group.request_id} has finished"
            assert {seq.status.name for seq in unfinished} == {status}, "I16"
            for seq in group.seqs:
                device = blocks.device(seq.seq_id)
                assert device in (devices[status] if seq in unfinished else {None}), "I5"
    reserved = sum(num_reserved(group) for group in scheduler.running)
    assert reserved <= max_num_seqs, f"I18: {reserved} sequences reserved"


def num_reserved(group: Any) -> int:
    """The sequences of its part that are alive or to come; of beams all, since they come and go."""
    if group.forked and not group.params.use_beam_search:
        return sum(seq.finish_reason is None for seq in group.seqs)
    num_samples = group.params.best_of or group.params.n
    if group.params.use_beam_search:
        return num_samples
    return min(group.part_size, num_samples - group.seqs[-1].index)


def check_output(output: Any, blocks: Any, settings: Any) -> None:
    """I6: tables cover what is written, and no more than the tokens known and drafted. I10: no slot
    is written twice, and no block that others hold, but for two cases in which these others read
    what is being written: a hit on a block that fills up in this step, and the prompt of a group
    being rebuilt. I11: destinations of copies are distinct, live, and no sources. I15: swaps go one
    way; a prompt step has none, nor copies. I18: the budget. I23: no more is computed than there
    is, and a token is sampled iff that is all of it."""
    size = settings.block_size
    written: Counter[tuple[int, int]] = Counter()
    for entry in output.scheduled:
        seq, end = entry.seq, entry.start + entry.num_tokens
        table = blocks.block_table(seq.seq_id)
        assert entry.num_tokens >= 1 and entry.start == seq.num_computed_tokens, "I23"
        there_are = len(seq.token_ids) + len(entry.drafts)
        assert end <= there_are, "I23"
        assert (entry.num_samples > 0) == (end == there_are), "I23"
        assert blocks_for(end, size) <= len(table), "I6"
        assert len(table) <= blocks_for(there_are, size), "I6"
        for position in range(entry.start, end):
            block = table[position // size]
            written[block, position % size] += 1
            shares_prompt = entry.group.forked and position // size < entry.group.prompt_len // size
            alone = blocks.ref_count(block) == 1
            assert alone or shares_prompt or settings.enable_prefix_caching, "I10"
    assert set(written.values()) <= {1}, "I10: a slot is written twice"
    sources = [src for src, _ in output.blocks_to_copy]
    destinations = [dst for _, dst in output.blocks_to_copy]
    assert len(set(destinations)) == len(destinations), "I11"
    assert all(blocks.ref_count(dst) > 0 for dst in destinations), "I11"
    assert not set(destinations) & set(sources), "I11"
    assert not (output.blocks_to_swap_in and output.blocks_to_swap_out), "I15"
    if settings.scheduling == "sosp" and any(e.num_tokens > 1 for e in output.scheduled):
        moves = output.blocks_to_copy, output.blocks_to_swap_in, output.blocks_to_swap_out
        assert not any(moves), "I15: a prompt step moves blocks"
    num_batched_tokens = sum(entry.num_tokens for entry in output.scheduled)
    assert num_batched_tokens == output.num_batched_tokens, "I18"
    assert num_batched_tokens <= settings.max_num_batched_tokens, "I18"


def check_order_of_service(
    scheduler: Any, output: Any, waiting_before: Sequence[Any], key: Any
) -> None:
    """I17: nobody is admitted while somebody is swapped out or was just preempted; the admitted are
    a prefix of those waiting; victims come after all that stay."""
    admitted = [group for group in waiting_before if group in scheduler.running]
    assert admitted == list(waiting_before)[: len(admitted)], "I17: the head was passed over"
    if admitted:
        assert not scheduler.swapped and not output.preempted, "I17"
    preempted = {request_id for request_id, _ in output.preempted}
    victims = [g for g in (*scheduler.waiting, *scheduler.swapped) if g.request_id in preempted]
    assert len(victims) == len(preempted), "I17: a victim is in no queue"
    assert all(key(stays) < key(out) for stays in scheduler.running for out in victims), "I17"


def check_watermark(
    scheduler: Any, blocks: Any, waiting_before: Sequence[Any], watermark_blocks: int
) -> None:
    """I18: after an admission the watermark is free."""
    if any(group in scheduler.running for group in waiting_before):
        assert blocks.num_free_gpu_blocks >= watermark_blocks, "I18: watermark"


def check_adapters(scheduler: Any, output: Any, slots: dict[int, Any], max_loras: int) -> None:
    """I54: each row names the slot where its request's adapter lies, 0 without one; running groups
    have their adapters in max_loras slots, and nobody else has a slot.

    Args:
        slots: What steps have put into each slot so far; this one's adapters are added.
    """
    for slot, adapter in output.adapters:
        assert 1 <= slot <= max_loras, f"I54: slot {slot}"
        assert slots.get(slot) != adapter, "I54: it lay there already"
        slots[slot] = adapter
    new = [slot for slot, _ in output.adapters]
    assert len(set(new)) == len(new), "I54: a slot is filled twice in a step"
    for group in scheduler.running:
        assert slots.get(group.adapter_slot) == group.adapter, f"I54: {group.request_id}"
    for entry in output.scheduled:
        assert slots.get(entry.group.adapter_slot) == entry.group.adapter, "I54"
    for group in (*scheduler.waiting, *scheduler.swapped):
        assert group.adapter_slot == 0, f"I54: {group.request_id} does not run"
