"""Notes the names of vLLM's settings and metrics, which pages of the tutorial compare with ours.

    python -m tests.golden.make_vllm_names vllm-0.2.0-*.whl vllm-0.33.0-*.whl

The wheels come from PyPI (`pip download --no-deps vllm==0.2.0`, with `--platform`). Only names are
kept: of fields of the engine's arguments and of sampling parameters, and of Prometheus metrics.
"""

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

NAMES = Path(__file__).parent / "vllm_names.json"
FILES = ("vllm/engine/arg_utils.py", "vllm/sampling_params.py", "vllm/config/speculative.py")
METRIC = re.compile(r'"vllm:(\w+)"')


def settings(source: str) -> Iterator[str]:
    """Fields of the file's classes, and arguments of their constructors."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                yield part.target.id
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                yield from (argument.arg for argument in part.args.args[1:])


def names_of(wheel: Path) -> dict[str, list[str]]:
    """What the wheel's sources name."""
    with zipfile.ZipFile(wheel) as files:
        read = {name: files.read(name).decode() for name in files.namelist() if name[-3:] == ".py"}
    found = {name for path in FILES for name in settings(read.get(path, ""))}
    texts = [text for path, text in read.items() if "metrics" in path]
    shown = {name for text in texts for name in METRIC.findall(text)}
    return {"settings": sorted(found), "metrics": sorted(shown)}


def main() -> None:
    wheels = {path.name.split("-")[1]: path for path in map(Path, sys.argv[1:])}
    found = {version: names_of(path) for version, path in wheels.items()}
    NAMES.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
