"""What a property is: a sentence, examples to try, and a check that may fail on one of them.

An example is plain JSON: what is drawn can be written to a file, sent to another process and
repeated alone. A stateful property draws its whole history as a list of operations; an operation
that cannot be carried out at its place (its sequence has ended) is passed over, so that every
shorter list is an example as well, and shrinking works.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # a target's process, and pytest at each start, do without it
    from hypothesis import strategies as st

# Dicts with string keys, lists, strings, numbers, booleans and None. No `type` statement: a
# target's own process may have Python 3.11.
Example: TypeAlias = Any  # noqa: UP040


class Broken(AssertionError):
    """The target broke the property; the message says what was seen and what was expected."""


class Refused(Exception):
    """An adapter raises it where its target says no, as it may: there is no room, or no such value.

    Any other exception of a target is a failure.
    """


class Lacking(Exception):
    """The target lacks what the example asks for. The example is not counted."""

    because = "the target lacks what the example asks for"


class Elsewhere(Lacking):
    """Another property than the one that is looked at is broken, and finds it by itself.

    The example ends there, since nothing that follows can be trusted. It is not counted.
    """

    because = "another property is broken"


@dataclass(frozen=True)
class Capabilities:
    """What a target can do.

    Attributes:
        words: Names of features, of those that its suite knows.
        sizes: Limits by name, such as the largest block size; a suite says which it reads.
    """

    words: frozenset[str] = frozenset()
    sizes: dict[str, int] = field(default_factory=dict)

    def __contains__(self, word: str) -> bool:
        return word in self.words


@dataclass(frozen=True)
class Property:
    """Something that must hold for a target, whatever is asked of it.

    Attributes:
        name: Lower-case words with dashes, unique in its suite.
        sentence: What must hold, in one sentence. A failure shows it.
        examples: Draws examples that suit a target's capabilities.
        check: Tries one example on targets that its first argument makes, as its suite says.
            Raises Broken, or whatever the target raised; Lacking if the example asks too much,
            Elsewhere if another property ends it.
        invariant: Its number in docs/correctness.md, such as "I4"; None if it has none there.
        needs: Capabilities without which it is skipped.
        smaller: Gives smaller examples of one, the likeliest to fail first, where a general search
            for them would take too long: a server answers few examples a second.
    """

    name: str
    sentence: str
    examples: "Callable[[Capabilities], st.SearchStrategy[Example]]"
    check: Callable[[Any, Example], None]
    invariant: str | None = None
    needs: Collection[str] = ()
    smaller: "Callable[[Example], Iterable[Example]] | None" = None


def of_runs(
    histories: "Callable[[Capabilities], st.SearchStrategy[Example]]",
    run: Callable[[Any, Example, str], None],
) -> Callable[..., Property]:
    """What makes properties that are all of one kind of history.

    Args:
        run: Carries a history out, and raises Broken where it breaks the property of this name.
    """

    def made(
        name: str, invariant: str | None, sentence: str, needs: Collection[str] = ()
    ) -> Property:
        def check(make: Any, example: Example) -> None:
            run(make, example, name)

        return Property(name, sentence, histories, check, invariant, needs)

    return made


def demand(holds: bool, says: str) -> None:
    """Raises Broken with this message unless the condition holds."""
    if not holds:
        raise Broken(says)
