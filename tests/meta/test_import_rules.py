"""Who may import whom: the oracle and the engine share no code, and the controller has no JAX."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.trees import PACKAGES, ROOT, imported_names, modules

STDLIB = set(sys.stdlib_module_names)
# Operations of `pallas_kernels` whose kernel for a CPU is called without a backend's package.
OWN_CPU_KERNELS = ("backends.py", "bidirectional_attention.py", "block_copy.py", "kv_write.py")


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _top_level(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported_names(path)} - STDLIB


@pytest.mark.parametrize("path", modules("reference"), ids=_id)
def test_reference_imports_numpy_and_itself_only(path: Path) -> None:
    assert _top_level(path) <= {"numpy", "jaxtyping", "reference"}


@pytest.mark.parametrize("path", modules("pallas_kernels"), ids=_id)
def test_kernels_import_jax_and_themselves_only(path: Path) -> None:
    """The CPU's kernels, a package of their own, are for one backend and imported when it runs."""
    allowed = {"jax", "numpy", "jaxtyping", "pallas_kernels"}
    if path.parent.name == "numba" or path.name in OWN_CPU_KERNELS:
        allowed |= {"cpu_kernels"}
    assert _top_level(path) <= allowed


@pytest.mark.parametrize("path", modules("cpu_kernels"), ids=_id)
def test_cpu_kernels_import_numba_jax_and_themselves_only(path: Path) -> None:
    assert _top_level(path) <= {"jax", "numpy", "jaxtyping", "llvmlite", "numba", "cpu_kernels"}


@pytest.mark.parametrize("path", modules("cpu_kernels"), ids=_id)
def test_only_simd_emits_llvm(path: Path) -> None:
    """And `compiling/` hands LLVM what is emitted; the rest is plain Python for Numba."""
    emits = ("llvmlite", "numba.extending", "numba.core")
    if path.parent.name not in ("simd", "compiling"):
        assert not any(name.startswith(emits) for name in imported_names(path))


@pytest.mark.parametrize("path", modules("jax_engine"), ids=_id)
def test_engine_never_imports_the_oracle(path: Path) -> None:
    assert not _top_level(path) & {"reference", "tests", "benchmarks"}


@pytest.mark.parametrize("path", modules("jax_engine/core"), ids=_id)
def test_controller_imports_plain_python_only(path: Path) -> None:
    assert _top_level(path) <= {"jax_engine", "jaxtyping", "numpy"}
    engine_parts = {name for name in imported_names(path) if name.startswith("jax_engine")}
    known = ("core", "errors", "lora.adapter", "config.engine_config", "step")
    allowed = tuple(f"jax_engine.{name}" for name in known)
    assert all(name.startswith(allowed) for name in engine_parts), engine_parts


@pytest.mark.parametrize("path", modules("jax_engine/worker"), ids=_id)
def test_the_worker_knows_of_the_controller_only_what_a_step_is(path: Path) -> None:
    """So it can run in another process."""
    others = (
        "jax_engine.core",
        "jax_engine.engine",
        "jax_engine.guided",
        "jax_engine.tokenization",
    )
    assert not any(name.startswith(others) for name in imported_names(path))


@pytest.mark.parametrize("path", modules("jax_engine/engine"), ids=_id)
def test_the_engine_knows_of_a_device_only_what_a_runner_is(path: Path) -> None:
    """But for what makes the runner of this process, and what it asks for sizes."""
    if path.name not in ("build.py", "build_encoder.py", "engine_memory.py"):
        assert not any(name.startswith("jax_engine.worker") for name in imported_names(path))


@pytest.mark.parametrize("path", modules("examples"), ids=_id)
def test_examples_use_the_public_api_only(path: Path) -> None:
    assert not _top_level(path) & {"reference", "tests", "benchmarks"}


@pytest.mark.parametrize("path", modules("exercises"), ids=_id)
def test_exercises_import_numpy_and_themselves_only(path: Path) -> None:
    """And no task gives its solution away. Puzzles of kernels need JAX."""
    of_kernels = "kernels" in path.relative_to(ROOT).parts
    assert _top_level(path) <= {"numpy", "exercises"} | ({"jax"} if of_kernels else set())
    if path.parent.name != "solutions":
        solutions = ("exercises.solutions", "exercises.kernels.solutions")
        assert not any(name.startswith(solutions) for name in imported_names(path))


@pytest.mark.parametrize("path", modules("paged_conformance"), ids=_id)
def test_the_suite_for_others_imports_the_oracle_and_itself_only(path: Path) -> None:
    """Adapters import the engine that they adapt; JAX and ml_dtypes are for kernels that use them.

    The oracle is imported by lines that the distribution's build can rewrite.
    """
    allowed = {"hypothesis", "numpy", "paged_conformance", "reference", "tqdm"}
    inside = path.relative_to(ROOT / "paged_conformance").parts
    if path.name in ("pytest_plugin.py", "pytest_items.py"):
        allowed |= {"pytest"}
    if inside[0] == "kernel":
        allowed |= {"jax", "ml_dtypes"}
    if inside[0] == "adapters":
        assert not _top_level(path) & {"tests", "playground", "benchmarks"}
        return
    assert _top_level(path) <= allowed


@pytest.mark.parametrize("path", modules("playground"), ids=_id)
def test_the_playground_imports_the_oracle_and_itself_only(path: Path) -> None:
    """It runs where there is no NumPy (tests/docs/test_playground_page.py)."""
    assert _top_level(path) <= {"reference", "playground"}


def test_importing_the_controller_loads_no_jax() -> None:
    """The AST rule again at run time: what a module imports may import more.

    `jax_engine/__init__.py`, which offers the whole engine, is stood in for by an empty package.
    """
    paths = [path.relative_to(ROOT).with_suffix("") for path in modules("jax_engine/core")]
    code = (
        "import sys, types\npackage = sys.modules['jax_engine'] = types.ModuleType('jax_engine')\n"
    )
    code += "package.__path__ = ['jax_engine']\n"
    code += "".join(f"import {'.'.join(path.parts)}\n" for path in paths)
    code += "bad = {'jax', 'flax', 'reference'} & set(sys.modules)\nassert not bad, bad"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_package_is_marked_as_typed() -> None:
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").exists()] == []
