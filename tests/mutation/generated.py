"""Bugs made by rule: all of them, each with a name that outlives edits elsewhere."""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from tests.mutation.planting import ROOT
from tests.mutation.rules import AnyFunction, Change, changes

ENGINE = ROOT / "jax_engine"
# The packages of the engine, and its files in none of them.
FOLDERS = {
    path.parent.name: f"jax_engine/{path.parent.name}" for path in ENGINE.glob("*/__init__.py")
}
FOLDERS = dict(sorted(FOLDERS.items())) | {"loose": "jax_engine"}
# More of one line prove the same: of each group so many, those of the rules named first.
RULES = (
    (
        "compare",
        "drop-not",
        "negate",
        "and-or",
        "delete",
        "arithmetic",
        "min-max",
        "swap",
        "constant",
    ),
    ("part", "never", "always", "assign"),
)
MOST_PER_LINE = (3, 4)


@dataclass(frozen=True)
class Name:
    """Which bug: the line's text instead of its number, and a count where that says too little."""

    file: str
    function: str
    rule: str
    line: str
    index: int

    def __str__(self) -> str:
        return f"{self.file}: {self.function}: {self.rule} in `{self.line}` ({self.index})"


@dataclass(frozen=True)
class Function:
    """A function of a module or of a class, with what is needed to compile it alone."""

    file: str
    name: str
    classes: tuple[ast.ClassDef, ...]
    node: AnyFunction
    lines: list[str]

    @property
    def key(self) -> str:
        """Changes with the code, and with nothing else: not with comments or docstrings."""
        body = [one for one in self.node.body if not _is_docstring(one)]
        dump = ast.dump(self.node.args) + "".join(map(ast.dump, body))
        return hashlib.sha256(dump.encode()).hexdigest()[:10]

    def compiled(self) -> CodeType:
        """The function's code as it stands in the tree now."""
        node: ast.stmt = self.node
        for outer in reversed(self.classes):
            empty = ast.ClassDef(outer.name, [], [], [node], [], type_params=[])
            node = ast.copy_location(empty, outer)
        tree = ast.fix_missing_locations(ast.Module([node], []))
        code = compile(tree, str(ROOT / self.file), "exec", dont_inherit=True)
        for part in (*self.classes, self.node):
            generic = _inner(code, f"<generic parameters of {part.name}>")
            found = _inner(generic or code, part.name)
            assert found is not None
            code = found
        return code


def _inner(code: CodeType, name: str) -> CodeType | None:
    """The code of this name that this code makes; None: there is none."""
    found = (one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    return next(found, None)


@dataclass(frozen=True)
class Generated:
    """A bug in a function; its name is unique."""

    name: Name
    function: Function
    change: Change

    @property
    def file(self) -> str:
        return self.name.file

    @property
    def old(self) -> str:
        return ast.unparse(self.change.node)

    @property
    def new(self) -> str:
        return ast.unparse(self.change.new)

    @property
    def lines(self) -> range:
        """The lines that run when the changed code does."""
        return range(self.change.node.lineno, (self.change.node.end_lineno or 0) + 1)

    def compiled(self) -> CodeType:
        """The function's code with the bug in it."""
        self.change.swap(self.change.new)
        try:
            return self.function.compiled()
        finally:
            self.change.swap(self.change.node)

    def codes(self) -> list[CodeType]:
        return [self.compiled()]

    def __str__(self) -> str:
        return str(self.name)


def all_generated(folders: list[str]) -> list[Generated]:
    """The bugs of these folders (of `FOLDERS`), in the order of files and lines."""
    paths = [path for folder in folders for path in files_of(folder)]
    return [one for path in paths for one in of_file(path.relative_to(ROOT).as_posix())]


def of_file(file: str) -> list[Generated]:
    """The bugs of one file, in the order of its lines."""
    text = (ROOT / file).read_text("utf-8")
    return [mutant for one in functions(file, text) for mutant in _of_function(one)]


def files_of(folder: str) -> list[Path]:
    """The modules of a folder of `FOLDERS`."""
    path = ROOT / FOLDERS[folder]
    return sorted(path.glob("*.py") if path == ENGINE else path.rglob("*.py"))


def functions(file: str, text: str) -> Iterator[Function]:
    """Those of a file that are not inside of another, but for what only shows a value."""
    lines = text.splitlines()
    todo: list[tuple[ast.AST, tuple[ast.ClassDef, ...]]] = [(ast.parse(text), ())]
    while todo:
        parent, classes = todo.pop(0)
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef):
                todo.append((node, (*classes, node)))
            elif isinstance(node, AnyFunction) and node.name not in ("__repr__", "__str__"):
                name = ".".join([*(one.name for one in classes), node.name])
                yield Function(file, name, classes, node, lines)


def _of_function(function: Function) -> list[Generated]:
    lines: dict[int, list[Change]] = {}
    for change in changes(function.node):
        lines.setdefault(change.node.lineno, []).append(change)
    mutants: list[Generated] = []
    seen: Counter[tuple[str, str]] = Counter()
    for number in sorted(lines):
        text = function.lines[number - 1].partition("  # ")[0].strip()  # words may change
        for change in _chosen(lines[number]):
            index = seen[change.rule, text]
            seen[change.rule, text] += 1
            name = Name(function.file, function.name, change.rule, text, index)
            mutants.append(Generated(name, function, change))
    return mutants


def _chosen(of_a_line: list[Change]) -> Iterator[Change]:
    for rules, most in zip(RULES, MOST_PER_LINE, strict=True):
        its = (one for one in of_a_line if one.rule in rules)
        yield from sorted(its, key=lambda one: rules.index(one.rule))[:most]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
