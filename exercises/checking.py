"""How an answer is checked, and told what is wrong with it."""

import traceback
from collections.abc import Callable


class Wrong(Exception):
    """Something the answer did is not what the rule says; the text says it in words."""


def expect(found: object, wanted: object, what: str) -> None:
    """Raise Wrong unless they are equal. After `what` it says: got .., but it should be .."""
    if found != wanted:
        raise Wrong(f"{what}: got {found}, but it should be {wanted}")


def report[T](test: Callable[[T], None], answer: T) -> bool:
    """Run the test on the answer; print what is wrong with it, and say whether nothing is."""
    try:
        test(answer)
    except NotImplementedError:
        print("Not written yet: replace the line `raise NotImplementedError`, and run this again.")
        return False
    except Wrong as wrong:
        print(f"Not yet. {wrong}.")
        return False
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        print(
            f"Not yet. Your code raised {type(error).__name__}: {error} "
            f"(line {frame.lineno} of {frame.name}: `{frame.line}`)."
        )
        return False
    print("Right.")
    return True
