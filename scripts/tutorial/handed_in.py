"""Checks an exercise that a student handed in, with the check of this copy.

    python -m scripts.tutorial.handed_in answers/anna/allocator.py --seed 17

The file has the exercise's name. Of what it defines only the answer is taken, and what the student
added for it. The check, the errors and all else come from this copy, whatever the file makes of
them. A student's file is a program, and it runs: do this where it can do no harm.
"""

import argparse
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def names_of_answer(exercise: str) -> list[str]:
    """What the exercise's solution, and so any answer, defines."""
    solution = import_module(f"exercises.solutions.{exercise}").ANSWER
    return [one.__name__ for one in (solution if isinstance(solution, tuple) else (solution,))]


def answer_of(path: Path) -> Any:
    """The answer in a file, as the exercise's check takes it: one definition, or a tuple.

    Raises:
        AttributeError: The file lacks one of its definitions.
    """
    exercise = import_module(f"exercises.{path.stem}")
    spec = spec_from_file_location(f"handed_in_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    theirs = module_from_spec(spec)
    sys.modules[spec.name] = theirs
    spec.loader.exec_module(theirs)
    names = names_of_answer(path.stem)
    found = tuple(getattr(theirs, name) for name in names)
    ours = {name for name in vars(exercise) if not name.startswith("__")} - set(names)
    vars(theirs).update({name: vars(exercise)[name] for name in ours})
    return found if len(found) > 1 else found[0]


def check(path: Path, **seed: int) -> bool:
    """Prints what the exercise's check says; True if the answer is right."""
    exercise = import_module(f"exercises.{path.stem}")
    return bool(exercise.check(answer_of(path), **seed))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.tutorial.handed_in")
    parser.add_argument("file", type=Path, help="named as its exercise: allocator.py")
    parser.add_argument("--seed", type=int, help="the variant that the student was given")
    given = parser.parse_args()
    sys.exit(not check(given.file, **({} if given.seed is None else {"seed": given.seed})))


if __name__ == "__main__":
    main()
