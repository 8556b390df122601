"""Whether a wheel holds exactly what it is meant to: `python scripts/wheel_contents.py WHEEL`.

The engine and the kernels, with their tables and type marks, and nothing of the repository beside
them: `reference/` is run from a checkout, and its name is too common to take.
"""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("jax_engine", "pallas_kernels", "cpu_kernels")
SUFFIXES = {".py", ".json", ".typed", ".html", ".css", ".js"}
METADATA = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def intended() -> set[str]:
    """Paths of the three packages' files, as a wheel has them."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*")]
    return {path.relative_to(ROOT).as_posix() for path in files if path.suffix in SUFFIXES}


def problems(wheel: Path) -> list[str]:
    """What a wheel has too much and too little."""
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
    distribution = "-".join(wheel.name.split("-")[:2]) + ".dist-info/"
    wanted = intended() | {distribution + name for name in METADATA}
    return [f"too much: {name}" for name in sorted(found - wanted)] + [
        f"missing: {name}" for name in sorted(wanted - found)
    ]


def main() -> None:
    wheel = Path(sys.argv[1])
    found = problems(wheel)
    if found:
        sys.exit(f"{wheel.name}:\n" + "\n".join(found))
    print(f"{wheel.name}: {len(intended())} files in {', '.join(PACKAGES)}")


if __name__ == "__main__":
    main()
