"""Brings the suite's files from the repository, with the oracle as `paged_conformance.oracle`.

In the repository the oracle is the package `reference`, a name too common to take in others'
environments. So it is copied, and the lines that import it are written anew. In an unpacked sdist
this has been done: the files lie beside this one.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# In a docstring's example too.
IMPORT = re.compile(r"^(\s*(?:>>> |\.\.\. )?)(from|import) reference\b(.*)$", re.MULTILINE)
KINDS = (".py", ".typed", ".json")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before it builds an sdist or a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        here = Path(self.root)
        if (here / "paged_conformance").is_dir():
            return
        repository = here.parents[1]
        self._folder = tempfile.TemporaryDirectory()
        for source, place in files(repository):
            copy = Path(self._folder.name, place)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text("utf-8")
            copy.write_text(with_oracle(text) if source.suffix == ".py" else text, "utf-8")
            build_data["force_include"][str(copy)] = place
        if self.target_name == "sdist":
            build_data["force_include"][str(repository / "LICENSE")] = "LICENSE"
        else:
            metadata = self.build_config.builder.metadata
            name = f"{metadata.core.name.replace('-', '_')}-{metadata.version}.dist-info"
            place = f"{name}/licenses/LICENSE"
            build_data["force_include"][str(repository / "LICENSE")] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def files(repository: Path) -> Iterator[tuple[Path, str]]:
    """Each file of the suite and of the oracle, and its place in the distribution."""
    for package, place in (
        ("paged_conformance", "paged_conformance"),
        ("reference", "paged_conformance/oracle"),
    ):
        for path in sorted((repository / package).rglob("*")):
            if path.suffix in KINDS and "__pycache__" not in path.parts:
                yield path, f"{place}/{path.relative_to(repository / package).as_posix()}"


def with_oracle(text: str) -> str:
    """A module in which each import of `reference` is one of `paged_conformance.oracle`.

    >>> with_oracle("from reference.kv_cache import KVCache")
    'from paged_conformance.oracle.kv_cache import KVCache'

    Raises:
        ValueError: A line binds the name `reference` itself, which the text may use.
    """

    def anew(found: re.Match[str]) -> str:
        before, word, rest = found.groups()
        if word == "import" and " as " not in rest:
            raise ValueError(f"write `from reference... import ...`, not {found[0].strip()!r}")
        return f"{before}{word} paged_conformance.oracle{rest}"

    return IMPORT.sub(anew, text)
