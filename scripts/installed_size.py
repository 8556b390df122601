"""What the environment of the Python that runs this is made of, largest first, as a table."""

import importlib.metadata
from pathlib import Path

SHOWN_MB = 2


def megabytes(distribution: importlib.metadata.Distribution) -> float:
    """The size of the files that were installed with it, without bytecode."""
    paths = [Path(str(file.locate())) for file in distribution.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def main() -> None:
    sizes = {one.name: megabytes(one) for one in importlib.metadata.distributions()}
    sizes.pop("pip", None)
    shown = sorted((size, name) for name, size in sizes.items() if size >= SHOWN_MB)[::-1]
    rest = sum(sizes.values()) - sum(size for size, _ in shown)
    print("| package | MB |\n|---|---:|")
    for size, name in shown:
        print(f"| {name} | {size:.0f} |")
    print(f"| {len(sizes) - len(shown)} smaller ones | {rest:.0f} |")
    print(f"| **{len(sizes)} packages** | **{sum(sizes.values()):.0f}** |")


if __name__ == "__main__":
    main()
