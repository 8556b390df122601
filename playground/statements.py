"""The functions that are shown when their lines run, and the statements that these consist of.

A statement is what is lit, since Python counts the lines of a long one as several. Of a compound
statement (`if`, `for`, `while`) it is the head.

>>> source = "def f(a):\\n    'Says f.'\\n    while a.size > 1:\\n        a = half(a)\\n"
>>> [(one.first, one.last, one.reads, one.sets) for one in statements(ast.parse(source).body[0])]
[(3, 3, ('a.size',), ()), (4, 4, ('half', 'a'), ('a',))]
"""

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

MODULES = (
    "reference.scheduler",
    "reference.scheduler_unified",
    "reference.scheduler_sosp",
    "reference.scheduler_state",
    "reference.admission",
    "reference.adapter_slots",
    "reference.beam_search",
    "reference.speculation",
    "reference.blocks",
    "reference.allocator",
    "reference.prefix_cache",
    "playground.trace_memory",
    "playground.trace_run",
    "playground.breaks",
)
"""The scheduler and the block manager; the words that stand for a model; the faults."""
PLANTED = "playground/breaks.py"
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Statement:
    """Lines `first` to `last` of a file, and the names that it reads and sets there.

    A name may be a chain of attributes, such as `state.blocks.num_free_gpu_blocks`.
    """

    first: int
    last: int
    kind: str
    text: str
    reads: tuple[str, ...]
    sets: tuple[str, ...]
    body: tuple[int, int] | None = None
    """The lines of its body, where it is a loop."""


@dataclass(frozen=True)
class Function:
    """A function as it stands in a file.

    Attributes:
        shown: its lines from `def` on, less the docstring.
        is_short: one plain statement is all that it is, so nothing is gained by stepping into it.
    """

    file: str
    name: str
    first: int
    shown: tuple[tuple[int, str], ...]
    statements: tuple[Statement, ...]
    is_short: bool

    def at(self, line: int) -> int | None:
        """The number of the statement that a line belongs to."""
        for number, one in enumerate(self.statements):
            if one.first <= line <= one.last:
                return number
        return None


def function_of(code: CodeType) -> Function | None:
    """The one that a code object was compiled from; None where it is not to be shown."""
    found = _by_place().get((code.co_filename, code.co_firstlineno))
    if found is None or code.co_name != found.name.rpartition(".")[2]:
        return None
    return None if found.is_short and found.file != PLANTED else found


def of_code(code: CodeType) -> Function:
    """The one that a code object was compiled from, however short. Raises KeyError."""
    return _by_place()[code.co_filename, code.co_firstlineno]


def all_functions() -> list[Function]:
    return list(_by_place().values())


@cache
def _by_place() -> Mapping[tuple[str, int], Function]:
    """By file name and first line, as a code object has them."""
    found = {}
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None, module
        source = Path(spec.origin).read_text("utf-8")
        file = module.replace(".", "/") + ".py"
        for name, node in _definitions(ast.parse(source), ""):
            one = _function(file, name, node, source.splitlines())
            found[spec.origin, one.first] = one
    return found


def _definitions(tree: ast.AST, inside: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield f"{inside}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _definitions(node, f"{inside}{node.name}.")


def _function(file: str, name: str, node: ast.FunctionDef, lines: list[str]) -> Function:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    body = _without_docstring(node.body)
    says = set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    hidden = set() if body == node.body else says
    numbers = [n for n in range(first, (node.end_lineno or 0) + 1) if n not in hidden]
    one_line = len(body) == 1 and isinstance(body[0], ast.Return | ast.Expr | ast.Assign)
    return Function(
        file,
        name,
        first,
        tuple((n, lines[n - 1]) for n in numbers),
        tuple(statements(node)),
        is_short=one_line,
    )


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] if _is_text(body[0]) else body


def _is_text(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def statements(node: ast.AST) -> Iterator[Statement]:
    """Those of a function, in the order of its lines."""
    body = getattr(node, "body", [])
    if isinstance(node, ast.FunctionDef):
        body = _without_docstring(body)
    for one in [*body, *getattr(node, "orelse", []), *getattr(node, "handlers", [])]:
        if isinstance(one, ast.stmt) and not _is_text(one):  # text does not run
            yield _statement(one)
        yield from statements(one)


def _statement(node: ast.stmt) -> Statement:
    inner = getattr(node, "body", None)
    last = inner[0].lineno - 1 if inner else node.end_lineno or node.lineno
    head = _head(node)
    reads, sets = _names(head, ast.Load), _names(head, ast.Store)
    end = node.end_lineno or last
    is_loop = isinstance(node, ast.For | ast.While)
    return Statement(
        node.lineno,
        last,
        type(node).__name__.lower(),
        ast.unparse(node).partition("\n")[0],
        reads,
        sets,
        (last + 1, end) if is_loop else None,
    )


def _head(node: ast.stmt) -> list[ast.AST]:
    if isinstance(node, ast.For):
        return [node.target, node.iter]
    if isinstance(node, ast.If | ast.While):
        return [node.test]
    if isinstance(node, ast.Try | ast.FunctionDef | ast.ClassDef):
        return []
    return [node]


def _names(nodes: list[ast.AST], context: type[ast.expr_context]) -> tuple[str, ...]:
    """Names and chains of attributes, each once; those of a comprehension's own are left out."""
    own = {
        name.id
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.comprehension)
        for name in ast.walk(part.target)
        if isinstance(name, ast.Name)
    }
    found: dict[str, None] = {}
    for node in nodes:
        _chains(node, context, found)
    return tuple(name for name in found if name.partition(".")[0] not in own)


def _chains(node: ast.AST, context: type[ast.expr_context], found: dict[str, None]) -> None:
    """The longest chain that begins here, or those of the parts."""
    chain = _chain(node)
    if chain is not None:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, context):
            found[chain] = None
        return
    if isinstance(node, ast.Lambda):
        return
    for part in ast.iter_child_nodes(node):
        _chains(part, context, found)


def _chain(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _chain(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None
