"""The checker behind the import hook in conftest.py: shapes and dtypes of arrays, nothing else.

Other annotations are mypy's business, and some of them (protocols) cannot be checked at run time.
"""

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def _holds_array(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_holds_array(part) for part in get_args(hint))


def check_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Checks the arguments and the result that are annotated as arrays, at each call."""
    hints = function.__annotations__
    function.__annotations__ = {name: h for name, h in hints.items() if _holds_array(h)}
    return beartype(function)
