"""The import hook of conftest.py works: a wrong shape fails at the call, in tests only."""

import ast

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from pallas_kernels import write_kv
from tests.conftest import CHECKED_SHAPES
from tests.meta.trees import ROOT


def test_wrong_rank_in_the_kernels() -> None:
    cache = jnp.zeros((1, 2, 3, 1, 4, 8))
    with pytest.raises(TypeCheckError, match="slot_mapping"):
        write_kv(cache, jnp.zeros((2, 1, 8)), jnp.zeros((2, 1, 8)), jnp.zeros((2, 1), int), layer=0)


def test_letters_bind_across_arguments() -> None:
    cache = jnp.zeros((1, 2, 3, 1, 4, 8))
    with pytest.raises(TypeCheckError):
        write_kv(cache, jnp.zeros((2, 1, 8)), jnp.zeros((3, 1, 8)), jnp.zeros(2, int), layer=0)


@pytest.mark.parametrize("package", [one for one in CHECKED_SHAPES if one.startswith("cpu_")])
def test_no_function_that_numba_compiles_is_checked(package: str) -> None:
    """It could not be compiled. Where kernels are compiled already, nothing else would notice."""
    place = ROOT / package.replace(".", "/")
    files = [*place.rglob("*.py")] if place.is_dir() else [place.with_suffix(".py")]
    compiled = ("cpu_kernels.compiling.jit", "cpu_kernels.calls.kernel", "numba")
    assert files and all(
        name not in compiled for file in files for name in imported(file.read_text("utf-8"))
    )


def imported(text: str) -> set[str]:
    """The modules that a file imports from."""
    nodes = list(ast.walk(ast.parse(text)))
    whole = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    return whole | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
