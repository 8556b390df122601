"""Notes the settings of vLLM's engine and server, with their defaults, from vLLM's own sources.

    make vllm-settings                                   # of the newest version on the index
    python -m scripts.vllm_settings --version 0.33.0     # of that one
    python -m scripts.vllm_settings vllm-0.33.0/         # of a folder or a wheel
    python -m scripts.vllm_settings --check              # the version that was noted, again

Nothing of vLLM is run: its sources are parsed, and defaults followed from one class to the next.
The tests compare `tests/golden/vllm_settings.json` with the tables of this engine
(`jax_engine/config/vllm_settings.py`, `jax_engine/commands/vllm_flags.py`), so a setting that is
new in vLLM is one red test until it has its row.
"""

import argparse
import ast
import json
import re
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.vllm_examples.source import CannotFetch, download

NOTED = Path(__file__).parents[1] / "tests" / "golden" / "vllm_settings.json"
ENGINE = ("EngineArgs", "AsyncEngineArgs")
SERVER = ("BaseFrontendArgs", "FrontendArgs")
# The files that define them, and what their defaults are. Two of them add flags that are fields of
# no class.
FILES = re.compile(
    r"(^|/)vllm/(config/|engine/arg_utils|entrypoints/.*(cli_args|constants)|.*/registry)"
)
ADDED_IN = ("cli_args.py", "arg_utils.py")
UNKNOWN = "?"  # a default that is computed when vLLM starts


class Sources:
    """The classes and constants of Python files, by name, and the flags that files add."""

    def __init__(self, texts: dict[str, str]) -> None:
        """`texts` has the files by path."""
        self.classes: dict[str, ast.ClassDef] = {}
        self.constants: dict[str, ast.expr] = {}
        self.flags: dict[str, list[str]] = {}
        self.only_flags: dict[str, Any] = {}
        for path, text in sorted(texts.items()):
            tree = ast.parse(text)
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self.constants.setdefault(node.targets[0].id, node.value)
            if path.endswith(ADDED_IN):
                self._add_flags(tree)

    def _add_flags(self, tree: ast.Module) -> None:
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and _name(call.func) == "add_argument"):
                continue
            given = [one.value for one in call.args if isinstance(one, ast.Constant)]
            long = [one for one in given if one.startswith("--")]
            if not long:
                continue
            name = long[0].removeprefix("--").replace("-", "_")
            self.flags[name] = sorted(set(given) - {long[0]}, key=given.index)
            self.only_flags[name] = next(
                (self.value(one.value) for one in call.keywords if one.arg == "default"), None
            )

    def fields(self, class_name: str) -> dict[str, Any]:
        """The public fields of a class, with their defaults as JSON has them."""
        found = {}
        for part in self.classes[class_name].body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                name = part.target.id
                if not name.startswith("_"):
                    found[name] = self.value(part.value)
        return found

    def of_kind(self, class_name: str, *kinds: str) -> list[str]:
        """The fields of a class whose annotation has one of these types, and no text beside it."""
        found = []
        for part in self.classes[class_name].body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                types = {_name(one) for one in ast.walk(part.annotation)}
                inner = {_name(one) for one in _arguments(part.annotation)}
                if types & set(kinds) and not {"str", "dict"} & types - inner:
                    found.append(part.target.id)
        return found

    def value(self, node: ast.expr | None) -> Any:
        """The value of an expression: a constant, another class's field, or an empty object."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
                return -value
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self.value(left) * self.value(right)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.value(one) for one in parts]
            case ast.Dict(keys=[]):
                return {}
            case ast.Lambda(body=body):
                return self.value(body)
            case ast.Name(id=name) if name in self.constants:
                return self.value(self.constants[name])
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in self.classes:
                return self._of_class(owner, name)
            case ast.Call():
                return self._made(node)
        return UNKNOWN

    def _of_class(self, owner: str, name: str) -> Any:
        for part in self.classes[owner].body:
            if isinstance(part, ast.AnnAssign) and _name(part.target) == name:
                return self.value(part.value)
            if isinstance(part, ast.Assign) and _name(part.targets[0]) == name:
                value = self.value(part.value)  # a member of an enumeration is its name in flags
                return name if value == UNKNOWN or "." in str(value) else value
        return UNKNOWN

    def _made(self, call: ast.Call) -> Any:
        """What a call gives: `Field(...)`, `get_field(Class, "name")`, `list()`, `Class()`."""
        made = _name(call.func)
        options = {one.arg: one.value for one in call.keywords}
        if made == "get_field":
            owner, name = call.args
            return self._of_class(_name(owner), self.value(name))
        if made in ("field", "Field"):
            if "default_factory" in options:
                return self._empty(options["default_factory"])
            return self.value(options.get("default", call.args[0] if call.args else None))
        if made == "int" and call.args:
            inner = call.args[0]
            return 0 if isinstance(inner, ast.Attribute) and inner.attr == "CERT_NONE" else UNKNOWN
        return self._empty(call.func)

    def _empty(self, factory: ast.expr) -> Any:
        """What a factory gives: objects of settings are written as what differs from theirs."""
        if isinstance(factory, ast.Lambda):
            return self.value(factory.body)
        name = _name(factory)
        if name in ("list", "set", "tuple"):
            return []
        return {} if name == "dict" or name in self.classes else UNKNOWN


def _arguments(annotation: ast.expr) -> list[ast.AST]:
    """What stands within brackets: `str` of `list[str]`."""
    subscripts = [one for one in ast.walk(annotation) if isinstance(one, ast.Subscript)]
    return [inner for one in subscripts for inner in ast.walk(one.slice)]


def _name(node: ast.AST) -> str:
    return getattr(node, "attr", None) or getattr(node, "id", "")


def settings_of(texts: dict[str, str]) -> dict[str, Any]:
    """The settings of the engine and of the server by name, and how their flags are written.

    `switches` are the engine's flags that take no value, `lists` those that take several.

    Args:
        texts: vLLM's Python files by path.
    """
    sources = Sources(texts)
    engine = {name: one for owner in ENGINE for name, one in sources.fields(owner).items()}
    server = {name: one for owner in SERVER for name, one in sources.fields(owner).items()}
    others = {name: one for name, one in sources.only_flags.items() if name not in engine}
    short = {name: sources.flags[name] for name in sources.flags if sources.flags[name]}
    return {
        "engine": dict(sorted(engine.items())),
        "server": dict(sorted((server | others).items())),
        "other_names": dict(sorted(short.items())),
        "switches": sorted(one for owner in ENGINE for one in sources.of_kind(owner, "bool")),
        "lists": sorted(one for owner in ENGINE for one in sources.of_kind(owner, "list", "set")),
    }


def texts_of(place: Path) -> dict[str, str]:
    """Those of `FILES` in a folder, a wheel or a source distribution, by path."""
    if place.is_dir():
        return {
            str(one): one.read_text("utf-8") for one in place.rglob("*.py") if _counts(str(one))
        }
    if place.suffix == ".whl":
        with zipfile.ZipFile(place) as files:
            return {one: files.read(one).decode() for one in files.namelist() if _counts(one)}
    found = {}
    with tarfile.open(place) as members:
        for member in members:
            file = members.extractfile(member) if _counts(member.name) else None
            if file is not None:
                found[member.name] = file.read().decode()
    return found


def _counts(path: str) -> bool:
    return path.endswith(".py") and FILES.search(path) is not None


def main() -> int:
    """Writes the file, or with --check says whether it would change; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("place", nargs="?", type=Path, help="a folder, a wheel or a .tar.gz")
    parser.add_argument("--version", help="of vLLM (the newest on the index)")
    parser.add_argument("--check", action="store_true", help="write nothing; 1: it would change")
    args = parser.parse_args()
    noted = json.loads(NOTED.read_text("utf-8")) if NOTED.exists() else {}
    version = args.version or (noted.get("version") if args.check else None)
    with tempfile.TemporaryDirectory() as scratch:
        place = args.place
        if place is None:
            place = Path(scratch) / "vllm.tar.gz"
            try:
                version = download(place, version)
            except CannotFetch as error:
                print(f"not looked at: {error}")
                return 0 if args.check else 1
        found = {"version": version or noted.get("version")} | settings_of(texts_of(place))
    if args.check:
        print("as noted" if found == noted else f"vLLM {version} differs from {NOTED.name}")
        return int(found != noted)
    NOTED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    counts = f"{len(found['engine'])} settings of the engine, {len(found['server'])} of the server"
    print(f"vLLM {found['version']}: {counts}, in {NOTED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
