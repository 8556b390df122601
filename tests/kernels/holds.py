"""Properties of any kernel: Hypothesis draws from strategies that fit the kernel's sizes.

Hypothesis begins with the simplest example, and goes on with others. A kernel that is slow to try
gets few: none of them is the simplest, and the numbers they are drawn with differ from run to run.
"""

import functools
import inspect
import os
import zlib
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.kernels.cases import Case, Sizes
from tests.kernels.expected import Result
from tests.kernels.kernel import Kernel

Test = Callable[..., None]
# For each so many examples that the profile allows, a slow kernel gets its few once.
SLOW_FACTOR = 1000


def holds(**strategies: Callable[[Sizes], st.SearchStrategy[Any]]) -> Callable[[Test], Test]:
    """A test for the arguments named, drawn from strategies for the sizes of its `kernel`."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**by_pytest: Any) -> None:
            sizes = by_pytest["kernel"].sizes
            drawn = {name: strategy(sizes) for name, strategy in strategies.items()}

            def example(**values: Any) -> None:
                test(**by_pytest, **values)

            if sizes.few_examples:
                times = max(settings.default.max_examples // SLOW_FACTOR, 1)
                others = {name: value for name, value in by_pytest.items() if name != "kernel"}
                name = f"{test.__name__} {by_pytest['kernel'].name} {others}"
                few_examples(sizes.examples * times, drawn, example, name)
                return
            limits: dict[str, Any] = {
                "max_examples": min(settings.default.max_examples, sizes.examples)
            }
            if not sizes.shrink:
                limits |= {"phases": [Phase.generate], "database": None}
            settings(**limits)(given(**drawn)(example))()

        # What pytest is to provide, which is what Hypothesis does not.
        signature = inspect.signature(test)
        rest = [p for name, p in signature.parameters.items() if name not in strategies]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate


def few_examples(
    count: int, drawn: dict[str, st.SearchStrategy[Any]], test: Test, name: str
) -> None:
    """`test` on so many random examples, drawn with KERNELS_SEED and the test's name.

    The simplest example, which Hypothesis begins with, is the same in each run: it is left out. A
    failure is not made smaller, which takes hundreds of calls; it says what repeats it.
    """
    seed = os.environ["KERNELS_SEED"]
    simplest = True

    def example(**values: Any) -> None:
        nonlocal simplest
        if simplest:
            simplest = False
            return
        try:
            test(**values)
        except Exception as error:
            error.add_note(f"The same examples once more: KERNELS_SEED={seed}")
            raise

    limits = settings(max_examples=count + 1, phases=[Phase.generate], database=None)
    salted = zlib.crc32(f"{seed} {name}".encode())
    hypothesis.seed(salted)(limits(given(**drawn)(example)))()


def attend(kernel: Kernel, case: Case, options: dict[str, Any] | None = None) -> Result:
    """The kernel's result; the test is skipped where it lacks what the call asks for."""
    lacking = kernel.missing(case, options or {})
    if lacking is not None:
        pytest.skip(f"{kernel.name} lacks {lacking}")
    return kernel(case, options or {})
