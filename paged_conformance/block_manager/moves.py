"""Properties of forks, copies on write and swaps."""

from paged_conformance.block_manager.pools import property_of

MOVES = (
    property_of(
        "copies-are-what-changed",
        "I11",
        "The copies of a call are those from a table's old blocks to its new ones, each once.",
        ("fork",),
    ),
    property_of(
        "forks-share",
        "I12",
        "A fork has all of its parent's full blocks.",
        ("fork",),
    ),
    property_of(
        "swaps-only-rename",
        "I14",
        "Swapping changes nothing but the blocks' numbers, and keeps what is shared.",
        ("swap",),
    ),
)
