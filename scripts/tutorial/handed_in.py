"""Checks an exercise that a student handed in, with the check of this copy.

    python -m scripts.tutorial.handed_in answers/anna_allocator.py --seed 17

The name of the exercise ends the file's name, or `--exercise` gives it. Only the answer is taken
from the file, with what the student added for it. The check, the errors and all else come from
this copy. Beside the student's variant, variant 0 and three more are checked, all with different
numbers, so an answer in which a number is written down is wrong in one of them.

The exit status is 0 for a right answer, 1 for a wrong one, and 2 if nothing could be checked: the
file is missing, cannot be imported, lacks a definition, or ends the program. A student's file is a
program. It runs in a process of its own, which protects nothing else: run this where it can do no
harm.
"""

import argparse
import contextlib
import io
import sys
from enum import IntEnum
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from exercises.variants import draw

SOLUTIONS = Path(__file__).resolve().parents[2] / "exercises" / "solutions"
NUM_OTHERS = 3
"""Variants that are checked beside the student's and variant 0."""
MOST_TRIED = 100
"""Seeds to find them among: many seeds have equal numbers where there are few to choose from."""


class Status(IntEnum):
    """The exit status."""

    RIGHT = 0
    WRONG = 1
    UNCHECKED = 2


class Verdict(NamedTuple):
    """What came of one variant, and what the check printed, or why there was none."""

    status: Status
    says: str


class NoAnswerError(Exception):
    """The file has no answer that could be right or wrong; the text says why."""


def exercise_of(path: Path, named: str = "") -> str:
    """The exercise that was named, or whose name ends the file's name.

    Raises:
        NoAnswerError: There is no such exercise.
    """
    known = sorted(one.stem for one in SOLUTIONS.glob("[a-z]*.py"))
    found = [one for one in known if one == named or (not named and path.stem.endswith(one))]
    if not found:
        raise NoAnswerError(
            f"{named or path.stem} does not say which exercise this is: end the file's name with "
            f"the exercise's, or give --exercise, one of {', '.join(known)}"
        )
    return max(found, key=len)


def variants_of(exercise: str, seed: int) -> list[int]:
    """The student's variant, variant 0 and three more; no two have all their numbers in common."""
    kind = import_module(f"exercises.{exercise}").Numbers
    found = {draw(kind, seed): seed}
    found.setdefault(draw(kind, 0), 0)
    wanted = len(found) + NUM_OTHERS
    for other in range(seed + 1, seed + 1 + MOST_TRIED):
        if len(found) < wanted:
            found.setdefault(draw(kind, other), other)
    return list(found.values())


def answer_of(path: Path, exercise: str) -> Any:
    """The answer in a file, as the exercise's check takes it: one definition, or a tuple.

    The file need not contain what the exercise gives (`class Request`): it is there already.

    Raises:
        NoAnswerError: The file cannot be read or run, or lacks a definition.
    """
    solution = import_module(f"exercises.solutions.{exercise}").ANSWER
    parts = solution if isinstance(solution, tuple) else (solution,)
    names = [one.__name__ for one in parts]
    given = vars(import_module(f"exercises.{exercise}")).items()
    ours = {name: one for name, one in given if name not in names and not name.startswith("__")}
    theirs = _run(path, ours)
    lacking = [name for name in names if name not in vars(theirs)]
    if lacking:
        raise NoAnswerError(f"the file does not define {' and '.join(lacking)}")
    vars(theirs).update(ours)
    found = tuple(vars(theirs)[name] for name in names)
    return found if len(found) > 1 else found[0]


def _run(path: Path, ours: dict[str, Any]) -> ModuleType:
    """The file as a module, which has our definitions before it runs."""
    theirs = ModuleType(f"handed_in_{path.stem}")
    vars(theirs).update(ours)
    sys.modules[theirs.__name__] = theirs  # dataclasses look there for their module
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(theirs))
    except OSError as error:
        raise NoAnswerError(f"the file cannot be read: {error.strerror}") from error
    except SystemExit as error:
        raise NoAnswerError("the file ends the program when it is imported") from error
    except Exception as error:
        raise NoAnswerError(
            f"the file cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return theirs


def verdict(path: Path, exercise: str, seed: int) -> Verdict:
    """The verdict on one variant, from a process of its own: the file may end it at any line."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_judge, args=(theirs, path, exercise, seed))
    child.start()
    theirs.close()
    try:
        found: Verdict = ours.recv()
    except EOFError:
        return Verdict(Status.UNCHECKED, "the program ended before the check did")
    finally:
        child.join()
    return found


def _judge(to: Connection, path: Path, exercise: str, seed: int) -> None:
    """The child's part. Only what is printed during the check is kept."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            answer = answer_of(path, exercise)
    except NoAnswerError as error:
        to.send(Verdict(Status.UNCHECKED, str(error)))
        return
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            right = import_module(f"exercises.{exercise}").check(answer, seed=seed)
    except SystemExit:
        to.send(Verdict(Status.UNCHECKED, "the answer ends the program"))
        return
    to.send(Verdict(Status.RIGHT if right else Status.WRONG, printed.getvalue().strip()))


def check(path: Path, exercise: str = "", seed: int = 0) -> Status:
    """Prints what the exercise's check says of the student's variant, and then of the others."""
    try:
        name = exercise_of(path, exercise)
    except NoAnswerError as error:
        return _unchecked(path, str(error))
    seeds = variants_of(name, seed)
    for one in seeds:
        found = verdict(path, name, one)
        if found.status is Status.UNCHECKED:
            return _unchecked(path, found.says)
        if found.status is Status.WRONG and one != seed:
            print(f"But not in variant {one}, so a number may be written down in it:")
        if found.status is Status.WRONG or one == seed:
            print(found.says)
        if found.status is Status.WRONG:
            return Status.WRONG
    others = ", ".join(map(str, seeds[1:-1]))
    print(f"Right in the variants {others} and {seeds[-1]} as well.")
    return Status.RIGHT


def _unchecked(path: Path, why: str) -> Status:
    print(f"{path.name} could not be checked: {why}.")
    return Status.UNCHECKED


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.tutorial.handed_in")
    parser.add_argument("file", type=Path, help="its name ends with the exercise's: anna_beams.py")
    parser.add_argument("--exercise", default="", help="its name, if the file's does not say it")
    parser.add_argument("--seed", type=int, default=0, help="the student's variant; 0 if not given")
    given = parser.parse_args()
    sys.exit(check(given.file, given.exercise, given.seed))


if __name__ == "__main__":
    main()
