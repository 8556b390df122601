"""Variants of a task: a seed changes its numbers, so that students who sit together have others.

Where there are few numbers to choose from, two seeds may give the same variant.

A task's `Numbers` has a default for each of its numbers, and what else it may be. Variant 0 has the
defaults, as the pages do. In any other variant no number is the default, so an answer in which one
is written down is wrong there:

>>> from typing import Annotated, NamedTuple
>>> class Numbers(NamedTuple):
...     block_size: Annotated[int, range(2, 9)] = 4
>>> draw(Numbers, 0), draw(Numbers, 1)
(Numbers(block_size=4), Numbers(block_size=3))
>>> say(draw(Numbers, 1))
'block_size = 3'
"""

import sys
from random import Random
from typing import Any, get_type_hints


def draw(kind: Any, seed: int) -> Any:
    """The numbers of a variant."""
    if seed == 0:
        return kind()
    random = Random(seed)
    numbers = {}
    for name, usual in kind()._asdict().items():
        (known,) = get_type_hints(kind, include_extras=True)[name].__metadata__
        numbers[name] = random.choice([one for one in known if one != usual])
    return kind(**numbers)


def say(numbers: Any) -> str:
    """By their names, which are those of the task's arguments and attributes."""
    return ", ".join(f"{name} = {value}" for name, value in numbers._asdict().items())


def given_seed() -> int:
    """From the command line: `--seed 7`; 0 without one."""
    arguments = sys.argv[1:]
    if not arguments:
        return 0
    if len(arguments) != 2 or arguments[0] != "--seed" or not arguments[1].isdecimal():
        sys.exit(f"expected nothing, or --seed and a whole number, got {' '.join(arguments)}")
    return int(arguments[1])
