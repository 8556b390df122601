"""Properties of what blocks hold and of what is found in the cache."""

from paged_conformance.block_manager.pools import property_of

CONTENTS = (
    property_of(
        "contents",
        "I13",
        "After all writes and copies, each slot of a sequence's table holds its token's key and "
        "value.",
    ),
    property_of(
        "writes-are-to-own-blocks",
        "I10",
        "Nothing is written into a block that another sequence holds.",
    ),
    property_of(
        "hits-are-whole-blocks",
        "I26",
        "A hit is a whole number of blocks and leaves a token to compute.",
        ("prefix_cache",),
    ),
    property_of(
        "hits-are-equal-texts",
        "I25",
        "A block that is found holds the tokens that it was found for, after the same tokens, "
        "with the same salt and adapter.",
        ("prefix_cache",),
    ),
    property_of(
        "hits-are-computed",
        "I29",
        "A block that is found has been computed, or is being computed by the same step.",
        ("prefix_cache",),
    ),
    property_of(
        "what-is-there-is-found",
        "I26",
        "A prefix that was computed is found while nobody has taken its blocks.",
        ("prefix_cache", "keeps"),
    ),
    property_of(
        "the-oldest-goes-first",
        "I27",
        "Of the cached blocks that are free, the one that has been so for longest is handed out "
        "first.",
        ("prefix_cache", "lru"),
    ),
    property_of(
        "match-says-what-open-finds",
        None,
        "A look into the cache says what would be found, and changes nothing.",
        ("prefix_cache", "match"),
    ),
    property_of(
        "a-reset-forgets",
        None,
        "Nothing is found after a reset, and a reset that is refused changes nothing.",
        ("prefix_cache", "reset"),
    ),
)
