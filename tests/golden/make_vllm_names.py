"""Notes names of vLLM's settings, metrics and kernels, which the tutorial compares with ours.

    python -m tests.golden.make_vllm_names vllm-0.2.0-*.whl vllm-0.33.0-*.whl

The wheels come from PyPI (`pip download --no-deps vllm==0.2.0`, with `--platform`). Only names are
kept: of fields of the engine's arguments and of sampling parameters, of Prometheus metrics, of
methods of the asynchronous engine, and of the compiled operations on the KV cache. Beside them
stands the default of gpu_memory_utilization.
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
ASYNC = (
    ("vllm/engine/async_llm_engine.py", "AsyncLLMEngine"),
    ("vllm/v1/engine/async_llm.py", "AsyncLLM"),
)
SHARE = re.compile(
    r"^    gpu_memory_utilization: float = (?:Field\(default=)?([\d.]+)", re.MULTILINE
)
OPERATION = re.compile(r"\b(?:cache_ops|attention_ops|_C_cache_ops)\.(\w+)\(")


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


def methods(source: str, name: str) -> Iterator[str]:
    """Of the class of that name, in the file."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            kinds = ast.FunctionDef | ast.AsyncFunctionDef
            yield from (part.name for part in node.body if isinstance(part, kinds))


def names_of(wheel: Path) -> dict[str, list[str] | float]:
    """What the wheel's sources name."""
    with zipfile.ZipFile(wheel) as files:
        read = {name: files.read(name).decode() for name in files.namelist() if name[-3:] == ".py"}
    found = {name for path in FILES for name in settings(read.get(path, ""))}
    texts = [text for path, text in read.items() if "metrics" in path]
    shown = {name for text in texts for name in METRIC.findall(text)}
    operations = {name for text in read.values() for name in OPERATION.findall(text)}
    asynchronous = {one for path, name in ASYNC for one in methods(read.get(path, ""), name)}
    shares = {float(share) for text in read.values() for share in SHARE.findall(text)}
    assert len(shares) == 1, f"gpu_memory_utilization has several defaults: {shares}"
    return {
        "gpu_memory_utilization": shares.pop(),
        "settings": sorted(found),
        "metrics": sorted(shown),
        "operations": sorted(operations),
        "asynchronous": sorted(asynchronous),
    }


def main() -> None:
    wheels = {path.name.split("-")[1]: path for path in map(Path, sys.argv[1:])}
    found = {version: names_of(path) for version, path in wheels.items()}
    NAMES.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
