"""Diagrams of the documentation as SVG: `python -m scripts.figures` writes docs/figures/."""
