"""What has happened in a run of the tests, by name and how often.

A property that was never put to the test holds, too: so `--hypothesis-show-statistics` has it.
"""

from collections import Counter

from hypothesis import currently_in_test_context, event

SEEN: Counter[str] = Counter()


def saw(what: str, times: int = 1) -> None:
    """Notes it, in Hypothesis' statistics, too."""
    if times:
        SEEN[what] += times
        if currently_in_test_context():
            event(what)
