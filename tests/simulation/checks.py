"""What must hold of a simulated engine at any moment, and when it is idle."""

from jax_engine import LLMEngine
from jax_engine.worker.preemption_costs import ENOUGH_S
from tests.simulation.clock import TICK
from tests.simulation.device import MEASURED_SIZES, Speed
from tests.support.integrity import check_integrity
from tests.support.invariants import check_queues


def check_engine(engine: LLMEngine) -> None:
    """I1 to I5, I16 to I18 for the queues and tables; I51 for the gauges."""
    scheduler, blocks = engine.scheduler, engine.scheduler.block_manager
    check_integrity(blocks)
    check_queues(scheduler, blocks, lambda group: group.key, engine.config.max_num_seqs)
    stats = engine.stats()
    queues = scheduler.waiting, scheduler.running, scheduler.swapped
    assert [len(queue) for queue in queues] == [
        stats.num_waiting, stats.num_running, stats.num_swapped
    ]  # fmt: skip
    assert set(scheduler.groups) == {group.request_id for queue in queues for group in queue}
    assert stats.num_used_blocks + stats.num_free_blocks == stats.num_blocks
    assert stats.peak_used_blocks <= stats.num_blocks


def check_costs(engine: LLMEngine, speed: Speed) -> bool:
    """What was measured is what the device takes; whether anything was measured."""
    found = engine.stats().preemption_costs
    if found is None or speed.jitter:
        return found is not None
    best, size = float("inf"), 0
    for most in MEASURED_SIZES:
        if min(most, engine.max_model_len) > size:
            size = min(most, engine.max_model_len)
            seconds = (speed.step + speed.token * size) * TICK
            best = min(best, seconds / size)
            if seconds > ENOUGH_S:
                break
    # A clock that stands still shows no time; one without host blocks to try has no number.
    assert found.seconds_per_block in (0.0, speed.block * TICK, float("inf"))
    assert found.seconds_per_token in (0.0, best)
    return True


def check_idle(engine: LLMEngine) -> None:
    """I9: nothing is left of anybody."""
    assert not engine.has_unfinished_requests() and not engine.scheduler.has_unfinished()
    blocks = engine.scheduler.block_manager
    assert blocks.num_free_gpu_blocks == blocks.num_gpu_blocks, "I9"
    assert blocks.num_free_cpu_blocks == blocks.num_cpu_blocks, "I9"
    assert not blocks.tables and not engine.scheduler.groups
    assert not engine.scheduler._state.seq_ids
    assert engine.outputs() == []
    kept = set(engine.worker.setups) - set(engine._pipeline.closed)
    assert not kept, f"the worker keeps the requests {kept}"
