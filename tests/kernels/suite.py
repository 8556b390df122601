"""The property suite as a list, to be run on a kernel without pytest's collection."""

import inspect
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.kernels import test_invariants, test_paged_attention
from tests.kernels.holds import Test
from tests.kernels.kernel import Kernel


class Property(NamedTuple):
    """One test of the suite with one choice of its parameters.

    Attributes:
        name: of the test.
        test: what fails.
        parameters: values for pytest's parameters.
        id: name and parameters, in words.
    """

    name: str
    test: Test
    parameters: dict[str, Any]
    id: str

    def failure(self, kernel: Kernel) -> Exception | None:
        """What is wrong with a kernel; None as well where it lacks what the property is about."""
        try:
            self.test(kernel=kernel, **self.parameters)
        except pytest.skip.Exception:
            return None
        except Exception as error:
            return error
        return None


def properties() -> Iterator[Property]:
    """All properties of the suite."""
    for module in (test_paged_attention, test_invariants):
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_"):
                yield from _with_parameters(name, test)


def _with_parameters(name: str, test: Test) -> Iterator[Property]:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    choices = []
    for mark in marks:
        argument, values = mark.args[0], list(mark.args[1])
        ids = mark.kwargs.get("ids", values)
        ids = [ids(value) for value in values] if callable(ids) else list(ids)
        choices.append([(argument, *pair) for pair in zip(values, ids, strict=True)])
    for chosen in itertools.product(*choices):
        words = "-".join(str(word) for _, _, word in chosen)
        parameters = {argument: value for argument, value, _ in chosen}
        yield Property(name, test, parameters, f"{name}[{words}]" if words else name)
