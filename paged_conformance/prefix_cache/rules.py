"""The properties of prefix caches."""

from paged_conformance.prefix_cache.driver import run
from paged_conformance.prefix_cache.histories import histories
from paged_conformance.properties import of_runs

_property = of_runs(histories, run)

PROPERTIES = (
    _property(
        "matches-are-equal-texts",
        "I25",
        "A match gives the slots that were inserted for these tokens behind these tokens.",
    ),
    _property("matches-are-whole-pages", "I26", "A match is a whole number of pages."),
    _property("matches-are-longest", "I26", "A match is the longest that is cached."),
    _property(
        "inserts-keep-what-is-there",
        "I26",
        "An insert says how many of its tokens were cached already.",
    ),
    _property("locked-is-kept", "I27", "What a locked handle stands for is not evicted."),
    _property(
        "what-is-locked-is-protected",
        "I27",
        "The size that is protected is that of what is locked.",
    ),
    _property(
        "sizes-add-up", "I1", "What is evictable and what is protected is all that is cached."
    ),
    _property(
        "what-is-evictable-is-evicted",
        "I28",
        "What the sizes call evictable can be evicted, and no more; else the call is refused.",
    ),
    _property(
        "evicted-once", "I3", "Evicted slots were cached, come back once, and in whole pages."
    ),
    _property("nothing-stays-locked", "I9", "When the last lock is gone, everything is evictable."),
    _property(
        "the-oldest-goes-first",
        "I27",
        "The beginning that was used least recently is evicted first, its end before the rest.",
        ("lru",),
    ),
)
