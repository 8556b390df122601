"""§4.5 and §7.3, how a preempted group gives up its blocks: by swapping or by recomputation.

Which is cheaper depends on the block size, the context and the machine (Figure 19): swapping moves
each block twice, recomputation runs all computed tokens through the model once more.
"""

from collections.abc import Callable

from jax_engine.core.block_manager import BlockManager
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.core.swapping import distinct_blocks
from jax_engine.errors import ConfigError
from jax_engine.modes import PreemptionMode, PreemptionRule
from jax_engine.step import PreemptionCosts

type MeasureCosts = Callable[[], PreemptionCosts]


def check_rule(rule: PreemptionRule | None, costs: MeasureCosts | None) -> None:
    """
    Raises:
        ConfigError: The rule is "auto", and there are no costs.
    """
    if rule == "auto" and costs is None:
        raise ConfigError(
            'preemption_mode="auto" needs preemption_costs, got None: give them, or choose '
            '"recompute" or "swap"'
        )


def mode_for(
    group: SequenceGroup, manager: BlockManager, rule: PreemptionRule | None, costs: MeasureCosts
) -> PreemptionMode:
    """How to take this group's blocks. Without a rule: swap a group that forked."""
    if rule is None:
        return "swap" if group.forked else "recompute"
    if rule != "auto":
        return rule
    # Without CPU blocks there is no choice, and the costs need not be measured.
    return cheaper_mode(group, manager, costs()) if manager.num_cpu_blocks else "recompute"


def cheaper_mode(
    group: SequenceGroup, manager: BlockManager, costs: PreemptionCosts
) -> PreemptionMode:
    """Returns "swap" if moving the group's blocks out and in is faster than recomputing them."""
    tables = [manager.tables.get(seq.seq_id) for seq in group.unfinished()]
    num_blocks = distinct_blocks([table for table in tables if table is not None])
    swap = 2 * num_blocks * costs.seconds_per_block
    recompute = tokens_to_recompute(group, manager.block_size) * costs.seconds_per_token
    return "swap" if swap < recompute else "recompute"


def tokens_to_recompute(group: SequenceGroup, block_size: int) -> int:
    """Counts tokens of the prompt's full blocks once, later ones for each sequence."""
    computed = [seq.num_computed_tokens for seq in group.unfinished()]
    if len(computed) == 1:
        return computed[0]
    shared = group.prompt_len // block_size * block_size
    return shared + sum(max(0, one - shared) for one in computed)
