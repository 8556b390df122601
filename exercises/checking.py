"""How an answer is checked, and told what is wrong with it."""

import traceback
from collections.abc import Callable
from typing import Any

from exercises.variants import draw, say


class Wrong(Exception):
    """Something the answer did is not what the rule says; the text says it in words."""


def expect(found: object, wanted: object, what: str) -> None:
    """Raise Wrong unless they are equal. After `what` it says: got .., but it should be .."""
    if found != wanted:
        raise Wrong(f"{what}: got {found}, but it should be {wanted}")


def returned[T](value: T | None, what: str) -> T:
    """The value; raise Wrong if there is none."""
    if value is None:
        raise Wrong(f"{what} returned None: it may lack a `return`")
    return value


def must_raise(error: type[Exception], action: Callable[[], object], what: str) -> None:
    """Raise Wrong unless the action raises this error."""
    try:
        action()
    except error:
        return
    except NotImplementedError:
        raise
    except Exception as other:
        raise Wrong(
            f"{what} raised {type(other).__name__}, but it should raise {error.__name__}"
        ) from other
    raise Wrong(f"{what} raised nothing, but it should raise {error.__name__}")


def report[T](test: Callable[[T, Any], None], answer: T, kind: type, seed: int) -> bool:
    """Run the test on the answer; print what is wrong with it, and say whether nothing is.

    The test gets the numbers of this variant, too, which are printed unless it is variant 0.
    """
    numbers = draw(kind, seed)
    if seed:
        print(f"Variant {seed}: {say(numbers)}.")
    return verdict(lambda: test(answer, numbers))


def verdict(test: Callable[[], None]) -> bool:
    """Run a test; print what it found wrong, and say whether it found nothing."""
    try:
        test()
    except NotImplementedError as error:
        name = traceback.extract_tb(error.__traceback__)[-1].name
        print(f"Not written yet: `{name}`. Replace its line `raise NotImplementedError`.")
        return False
    except Wrong as wrong:
        print(f"Not yet: {wrong}.")
        return False
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        print(
            f"Not yet: your code raised {type(error).__name__}: {error} "
            f"(line {frame.lineno} of {frame.name}: `{frame.line}`)."
        )
        return False
    print("Right.")
    return True
