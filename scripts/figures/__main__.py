"""Writes every figure: each module of this package that has a `draw` returns name -> drawing."""

import pkgutil
from importlib import import_module
from pathlib import Path

import scripts.figures
from scripts.figures.svg import Drawing

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"


def all_figures() -> dict[str, Drawing]:
    """By file name, without its ending."""
    drawings: dict[str, Drawing] = {}
    for module in pkgutil.iter_modules(scripts.figures.__path__):
        if module.name not in ("__main__", "plot", "svg"):
            drawings |= import_module(f"scripts.figures.{module.name}").draw()
    return drawings


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, drawing in all_figures().items():
        (FOLDER / f"{name}.svg").write_text(drawing.svg(), encoding="utf-8")
        print(f"docs/figures/{name}.svg")


if __name__ == "__main__":
    main()
