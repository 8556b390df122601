"""Notes names of vLLM's settings, metrics and kernels, which the tutorial compares with ours.

    python -m tests.golden.make_vllm_names vllm-0.2.0-*.whl vllm-0.33.0-*.whl

The wheels come from PyPI (`pip download --no-deps vllm==0.2.0`, with `--platform`). Only names are
kept: of fields of the engine's arguments and of sampling parameters, of Prometheus metrics, of
methods of the asynchronous engine, of the compiled operations on the KV cache, and of what the
glossary names, with a file that defines it. Beside them stands the default of
gpu_memory_utilization.
"""

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.glossary import identifiers, terms

NAMES = Path(__file__).parent / "vllm_names.json"
FILES = ("vllm/engine/arg_utils.py", "vllm/sampling_params.py", "vllm/config/speculative.py")
PARTS = ("vllm/v1/core/", "vllm/v1/engine/", "vllm/v1/executor/", "vllm/config/", "vllm/v1/worker/")
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
    """Methods of the class of that name, in the file."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            kinds = ast.FunctionDef | ast.AsyncFunctionDef
            yield from (part.name for part in node.body if isinstance(part, kinds))


def defined(files: dict[str, str], wanted: set[str]) -> dict[str, str]:
    """The first file that defines each of these names: of PARTS, or else of any part."""
    found: dict[str, str] = {}
    place = {path: [not path.startswith(part) for part in PARTS] for path in files}
    for path in sorted(files, key=lambda path: (place[path], path)):
        missing = {name for name in wanted - set(found) if name in files[path]}
        if missing and not path.endswith("_pb2.py"):
            found |= dict.fromkeys(missing & set(identifiers(files[path])), path)
    return dict(sorted(found.items()))


def names_of(wheel: Path, wanted: set[str]) -> dict[str, list[str] | dict[str, str] | float]:
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
    sources = {path: text for path, text in read.items() if path.startswith("vllm/")}
    return {
        "gpu_memory_utilization": shares.pop(),
        "settings": sorted(found),
        "metrics": sorted(shown),
        "operations": sorted(operations),
        "asynchronous": sorted(asynchronous),
        "defined": defined(sources, wanted),
    }


def main() -> None:
    wheels = {path.name.split("-")[1]: path for path in map(Path, sys.argv[1:])}
    wanted = {
        "0.2.0": {name for one in terms() for name in one.old},
        "0.33.0": {name for one in terms() for name in one.vllm},
    }
    found = {version: names_of(path, wanted[version]) for version, path in wheels.items()}
    NAMES.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
