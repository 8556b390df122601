"""Properties of the pool and its tables: counts, owners, lengths, refusals, ends."""

from paged_conformance.block_manager.driver import run
from paged_conformance.block_manager.histories import histories
from paged_conformance.properties import of_runs

property_of = of_runs(histories, run)

POOLS = (
    property_of(
        "counts",
        "I1",
        "The free blocks are those that no table names, and there are never more blocks than the "
        "pool has.",
    ),
    property_of(
        "blocks-have-one-owner",
        "I2",
        "A block that is handed out is in no other table, and in its own table once.",
    ),
    property_of(
        "tables-are-long-enough",
        "I6",
        "A table has room for all tokens that are computed or scheduled, and for no more than are "
        "known.",
    ),
    property_of(
        "tables-stay",
        "I12",
        "A call changes nobody else's table, and of its own sequence's only what is written.",
    ),
    property_of(
        "refusals-leave-no-trace",
        "I28",
        "A call that is refused changes nothing: no count, no table, nothing that is found.",
    ),
    property_of(
        "what-fits-is-taken",
        "I20",
        "What fits into the free blocks is not refused, and what is accepted fits.",
    ),
    property_of(
        "ends-are-clean",
        "I22",
        "A sequence that was freed has no blocks; freeing it once more changes nothing.",
    ),
    property_of(
        "nothing-leaks",
        "I9",
        "When all sequences have ended, all blocks are free, and one sequence can have them all.",
    ),
    property_of(
        "misuse-is-refused",
        "I7",
        "A call that would spoil a table is refused.",
        ("strict",),
    ),
)
