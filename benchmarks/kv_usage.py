"""How full the KV blocks in use are: what the paper calls waste (§2, Figure 2), block by block."""

from dataclasses import dataclass
from statistics import mean

from jax_engine import LLMEngine


@dataclass(frozen=True)
class Usage:
    """One look at the pool.

    Attributes:
        used_blocks: Blocks of the device held by a sequence.
        stored_tokens: Positions of them that hold keys and values; a shared block counts once.
        block_size: B.
        total_blocks: G.
        num_running: Sequences with a table on the device.
        num_waiting: Groups not admitted yet.
    """

    used_blocks: int
    stored_tokens: int
    block_size: int
    total_blocks: int
    num_running: int
    num_waiting: int

    @property
    def utilisation(self) -> float:
        """Stored tokens over the slots of the blocks in use, in [0, 1]."""
        return (
            self.stored_tokens / (self.used_blocks * self.block_size) if self.used_blocks else 1.0
        )


def look(engine: LLMEngine) -> Usage:
    """The pool as it is between two steps."""
    scheduler = engine.scheduler
    blocks = scheduler.block_manager
    size = blocks.block_size
    fill: dict[int, int] = {}
    running = [seq for group in scheduler.running for seq in group.unfinished()]
    for seq in running:
        for index, block in enumerate(blocks.block_table(seq.seq_id)):
            stored = min(size, max(0, seq.num_computed_tokens - index * size))
            fill[block] = max(fill.get(block, 0), stored)
    return Usage(
        used_blocks=len(fill),
        stored_tokens=sum(fill.values()),
        block_size=size,
        total_blocks=blocks.num_gpu_blocks,
        num_running=len(running),
        num_waiting=len(scheduler.waiting),
    )


def summarise(looks: list[Usage]) -> dict[str, float | int | None]:
    """Utilisation over a run, and at saturation: requests wait, or 90 % of blocks are in use."""
    saturated = [u for u in looks if u.num_waiting or u.used_blocks >= 0.9 * u.total_blocks]
    at_saturation = 100 * mean(u.utilisation for u in saturated) if saturated else None
    return {
        "kv_utilisation_percent": _rounded(100 * mean(u.utilisation for u in looks)),
        "kv_utilisation_at_saturation_percent": _rounded(at_saturation),
        "kv_waste_at_saturation_percent": _rounded(
            None if at_saturation is None else 100 - at_saturation
        ),
        "saturated_looks": len(saturated),
        "peak_blocks_used": max(u.used_blocks for u in looks),
        "blocks": looks[0].total_blocks,
        "mean_running_sequences": _rounded(mean(u.num_running for u in looks)),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
