"""The controller (§4): block manager and scheduler, in plain Python and without any device."""

from jax_engine.core.block_manager import BlockManager
from jax_engine.core.blocks import BlockError, BlockPool, OutOfBlocksError
from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence import Sequence, SequenceStatus
from jax_engine.core.sequence_group import SequenceGroup

__all__ = [
    "BlockError",
    "BlockManager",
    "BlockPool",
    "OutOfBlocksError",
    "ScheduledSequence",
    "Scheduler",
    "SchedulerOutput",
    "Sequence",
    "SequenceGroup",
    "SequenceStatus",
]
