"""A property of `paged_conformance.kernel` for one of pytest's kernels.

Hypothesis begins with the simplest example, and goes on with others. A kernel that is slow to try
gets few: none of them is the simplest, and the numbers they are drawn with differ from run to run.
"""

import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase, given, settings

from paged_conformance import Capabilities, Example, Lacking, Property
from paged_conformance.kernel import PROPERTIES, Target
from paged_conformance.kernel.sizes import Sizes, to_numbers
from paged_conformance.kernel.target import Kernel

NAMED = {prop.name: prop for prop in PROPERTIES}
# For each so many examples that the profile allows, a slow kernel gets its few once.
SLOW_FACTOR = 1000


def hold(name: str, kernel: Kernel) -> None:
    """Tries a property on as many examples as the profile and the kernel's sizes allow.

    The test is skipped where the kernel lacks what the property needs.
    """
    prop, sizes = NAMED[name], kernel.sizes
    _skip_if_it_lacks(prop, kernel)

    def example(example: Example) -> None:
        hold_example(name, kernel, json.loads(json.dumps(example)))

    if sizes.few_examples:
        times = max(settings.default.max_examples // SLOW_FACTOR, 1)
        drawn = prop.examples(_has(kernel, replace(sizes, shrink=False)))
        few_examples(sizes.examples * times, drawn, example, f"{name} {kernel.name}")
        return
    limits: dict[str, Any] = {"max_examples": min(settings.default.max_examples, sizes.examples)}
    if not sizes.shrink:
        limits |= {"phases": [Phase.generate], "database": None}
    settings(**limits)(given(prop.examples(_has(kernel, sizes)))(example))()


def hold_example(name: str, kernel: Kernel, example: Example) -> None:
    """Tries a property on this example; the test is skipped where the kernel lacks it."""
    try:
        NAMED[name].check(target_of(kernel), example)
    except Lacking as lacking:
        _skip(str(lacking))


def few_examples(count: int, drawn: Any, test: Callable[..., None], name: str) -> None:
    """`test` on so many random examples, drawn with KERNELS_SEED and the test's name.

    The simplest example, which Hypothesis begins with, is the same in each run: it is left out. A
    failure is not made smaller, which takes hundreds of calls; it says what repeats it.
    """
    seed = os.environ["KERNELS_SEED"]
    simplest = True

    def example(example: Example) -> None:
        nonlocal simplest
        if simplest:
            simplest = False
            return
        try:
            test(example)
        except Exception as error:
            error.add_note(f"The same examples once more: KERNELS_SEED={seed}")
            raise

    limits = settings(max_examples=count + 1, phases=[Phase.generate], database=None)
    salted = zlib.crc32(f"{seed} {name}".encode())
    hypothesis.seed(salted)(limits(given(drawn)(example)))()


@cache
def target_of(kernel: Kernel) -> Target:
    return Target(kernel)


def _has(kernel: Kernel, sizes: Sizes) -> Capabilities:
    return Capabilities(target_of(kernel).capabilities, to_numbers(sizes))


def _skip_if_it_lacks(prop: Property, kernel: Kernel) -> None:
    lacking = target_of(kernel).lacking
    for word in prop.needs:
        if word in lacking:
            _skip(f"{kernel.name} lacks {lacking[word]}")


def _skip(reason: str) -> None:
    """From one line, so that pytest counts the tests of a reason together."""
    pytest.skip(reason)
