"""How an answer is checked, and told what is wrong with it."""

import traceback
from collections.abc import Callable


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


def report[T](test: Callable[[T], None], answer: T) -> bool:
    """Run the test on the answer; print what is wrong with it, and say whether nothing is."""
    try:
        test(answer)
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
