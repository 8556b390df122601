"""Properties of any kernel: Hypothesis draws from strategies that fit the kernel's sizes."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.kernels.cases import Case, Sizes
from tests.kernels.expected import Result
from tests.kernels.kernel import Kernel

Test = Callable[..., None]


def holds(**strategies: Callable[[Sizes], st.SearchStrategy[Any]]) -> Callable[[Test], Test]:
    """A test for the arguments named, drawn from strategies for the sizes of its `kernel`."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**by_pytest: Any) -> None:
            sizes = by_pytest["kernel"].sizes
            limits: dict[str, Any] = {
                "max_examples": min(settings.default.max_examples, sizes.examples)
            }
            if sizes.few_examples:
                # Shrinking takes hundreds of calls. The database would bring back old failures.
                limits |= {"phases": [Phase.explicit, Phase.generate], "database": None}

            @settings(**limits)
            @given(**{name: strategy(sizes) for name, strategy in strategies.items()})
            def example(**drawn: Any) -> None:
                test(**by_pytest, **drawn)

            example()

        # What pytest is to provide, which is what Hypothesis does not.
        signature = inspect.signature(test)
        rest = [p for name, p in signature.parameters.items() if name not in strategies]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate


def attend(kernel: Kernel, case: Case, options: dict[str, Any] | None = None) -> Result:
    """The kernel's result; the test is skipped where it lacks what the call asks for."""
    lacking = kernel.missing(case, options or {})
    if lacking is not None:
        pytest.skip(f"{kernel.name} lacks {lacking}")
    return kernel(case, options or {})
