"""How an answer is checked, and told what is wrong with it."""

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exercises.variants import draw, say

HERE = Path(__file__).parent
RUN_A_CHECK = {"checking.py"} | {f"kernels/{one}.py" for one in ("examining", "launch", "watching")}
PACKAGES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
"""Folders of Python's own modules, and of installed ones."""


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
    except Wrong as wrong:
        print(f"Not yet: {wrong}" + ("" if str(wrong).endswith((".", "?")) else "."))
        return False
    except Exception as error:
        last, own = _frames(error)
        if isinstance(error, NotImplementedError) and last is own:
            print(f"Not written yet: `{own.name}`. Replace its line `raise NotImplementedError`.")
        else:
            print(
                f"Not yet: your code raised {type(error).__name__}: {error} "
                f"(line {own.lineno} of {own.name}: `{own.line}`)."
            )
        return False
    print("Right.")
    return True


def _frames(error: Exception) -> tuple[traceback.FrameSummary, traceback.FrameSummary]:
    """Where the error was raised, and the last line before it that is the answer's.

    Python, its packages and what runs a check are not the answer: NumPy or JAX raises many errors
    for a line of the answer that called it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_machinery(Path(frame.filename))]
    return frames[-1], (own or frames)[-1]


def _is_machinery(path: Path) -> bool:
    if path.is_relative_to(HERE):
        return path.relative_to(HERE).as_posix() in RUN_A_CHECK
    return any(path.is_relative_to(folder) for folder in PACKAGES)
