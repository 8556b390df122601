"""What costs of preemption a simulated engine must have measured."""

from jax_engine import LLMEngine
from jax_engine.worker.preemption_costs import ENOUGH_S
from tests.simulation.clock import TICK
from tests.simulation.device import MEASURED_SIZES, Speed


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
