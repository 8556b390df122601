"""What the build of `paged-conformance` brings: the suite, with the oracle inside.

`.ci/conformance` builds and installs it; here its files are laid out as the build does it.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTION = ROOT / "distributions" / "paged-conformance"
TINY = (ROOT / "tests/conformance/tiny.py").read_text()


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook; hatchling, which calls it, is not needed for what is tried here."""
    names = "hatchling hatchling.builders hatchling.builders.hooks hatchling.builders.hooks.plugin"
    name = "hatchling.builders.hooks.plugin.interface"
    stand_in = ModuleType(name)
    stand_in.BuildHookInterface = object  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        for package in names.split():
            patch.setitem(sys.modules, package, ModuleType(package))
        patch.setitem(sys.modules, name, stand_in)
        spec = importlib.util.spec_from_file_location("hook", DISTRIBUTION / "hatch_build.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def installed(hook: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution's files alone, and a suite with its targets."""
    folder = tmp_path_factory.mktemp("installed")
    for source, place in hook.files(ROOT):
        text = source.read_text("utf-8")
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(
            hook.with_oracle(text) if source.suffix == ".py" else text, "utf-8"
        )
    (folder / "own").mkdir()
    (folder / "own" / "tiny.py").write_text(TINY)
    return folder


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
    )


def test_no_line_imports_reference(installed: Path) -> None:
    lines = [
        f"{path}: {line}"
        for path in (installed / "paged_conformance").rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if re.match(r"\s*(>>> |\.\.\. )?(from|import) reference\b", line)
    ]
    assert lines == []
    assert (installed / "paged_conformance/oracle/attention.py").exists()
    assert (installed / "paged_conformance/py.typed").exists()


def test_every_module_but_adapters_is_imported_without_the_repository(installed: Path) -> None:
    names = [
        ".".join(path.relative_to(installed).with_suffix("").parts)
        for path in sorted((installed / "paged_conformance").rglob("*.py"))
        if "adapters" not in path.parts and path.name not in ("__main__.py", "__init__.py")
    ]
    code = "import sys, importlib\n"
    code += f"for name in {names!r}: importlib.import_module(name)\n"
    code += "bad = {'reference', 'jax_engine', 'tests', 'jax'} & set(sys.modules)\n"
    code += "assert not bad, bad\nprint(sys.modules['paged_conformance.oracle.rope'].__file__)"
    done = run(installed, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed))


@pytest.mark.parametrize(("target", "status"), [("right", 0), ("forgetful", 1)])
def test_a_right_and_a_wrong_target(installed: Path, target: str, status: int) -> None:
    arguments = ("own.tiny", f"own.tiny:{target}", "--seconds", "5", "--seed", "1")
    done = run(installed, "-m", "paged_conformance", *arguments)
    assert done.returncode == status, done.stderr


@pytest.mark.parametrize(
    ("line", "anew"),
    [
        ("from reference import rope", "from paged_conformance.oracle import rope"),
        ("    from reference.a.b import c", "    from paged_conformance.oracle.a.b import c"),
        ("import reference.rope as r", "import paged_conformance.oracle.rope as r"),
        (">>> from reference.a import b", ">>> from paged_conformance.oracle.a import b"),
        ("from references import a", "from references import a"),
        ("see `reference.rope`", "see `reference.rope`"),
    ],
)
def test_import_lines_are_written_anew(hook: ModuleType, line: str, anew: str) -> None:
    assert hook.with_oracle(f"a = 1\n{line}\n") == f"a = 1\n{anew}\n"


def test_a_line_that_cannot_be_written_anew_is_refused(hook: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"not 'import reference\.rope'"):
        hook.with_oracle("import reference.rope")


def test_its_lower_bounds_are_those_of_the_engine() -> None:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    its = tomllib.loads((DISTRIBUTION / "pyproject.toml").read_text())["project"]
    known = [*ours["dependencies"], *ours["optional-dependencies"]["test"]]
    assert set(its["dependencies"]) <= set(known)
    assert its["requires-python"] == ours["requires-python"]
    for entry in (
        its["scripts"]["paged-conformance"],
        its["entry-points"]["pytest11"]["paged_conformance"],
    ):
        module, _, name = entry.partition(":")
        found = importlib.import_module(module)
        assert not name or callable(getattr(found, name))
