"""Rules that make bugs out of a function's syntax tree: a changed operator, a deleted line.

What no behaviour hangs on is left alone: annotations, docstrings, what is raised or logged.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutation.part_rules import parts

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef

COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
OPPOSITES = [("min", "max"), ("any", "all"), ("minimum", "maximum")]
OPPOSITE = {a: b for a, b in OPPOSITES} | {b: a for a, b in OPPOSITES}
UNORDERED = re.compile(
    r"min(imum)?|max(imum)?|compare_digest|zip|is.*|logical_.*"
    r"|hasattr|getattr|setattr|cast|print|.*Error"
)
SPEAKS = re.compile(r"print|warn|.*logg(er|ing).*|log|debug|info|warning|error|exception")
STORES = (ast.Assign, ast.AnnAssign)
SIMPLE = (ast.Name, ast.Attribute, ast.Constant, ast.Subscript)
SEQUENCES = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)


@dataclass(frozen=True)
class Change:
    """One bug: `new` in the place of the node that `parent` has there."""

    rule: str
    node: ast.expr | ast.stmt
    parent: ast.AST
    field: str
    place: int | None
    new: ast.AST

    def swap(self, node: ast.AST) -> None:
        """Puts `node` there, in the tree that the change was made for."""
        if self.place is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.place] = node


def changes(function: AnyFunction) -> Iterator[Change]:
    """All bugs that the rules make of a function, in the order of its text."""
    assigned: set[str] = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    for parent, field, place, node in _places(function, assigned):
        if function.name == "__init__" and parent is function and isinstance(node, STORES):
            continue  # an attribute that is not there fails at once
        for rule, new in _replacements(node, parent, field, assigned):
            assert isinstance(node, ast.expr | ast.stmt)
            ast.copy_location(new, node)
            yield Change(rule, node, parent, field, place, new)


def _places(
    parent: ast.AST, assigned: set[str]
) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Every node below one, but for what is left alone; names are noted once they are assigned."""
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list", "args", "ctx") and not (
            field == "args" and isinstance(parent, ast.Call)
        ):
            continue
        several = value if isinstance(value, list) else [value]
        for place, node in enumerate(several):
            if isinstance(node, ast.AST) and not _is_left_alone(node):
                yield parent, field, place if isinstance(value, list) else None, node
                if not isinstance(node, ast.Raise):
                    yield from _places(node, assigned)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    assigned.add(node.id)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr() | ast.Assert() | ast.Import():
            return True
        case ast.keyword(arg="strict"):  # of zip
            return True
        case ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Pass():
            return True
        case ast.Expr(value=ast.Call(func=function)):
            return bool(SPEAKS.fullmatch(ast.unparse(function).split(".")[-1]))
        case _:
            return False


def _replacements(
    node: ast.AST, parent: ast.AST, field: str, assigned: set[str]
) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                other = [*ops[:i], COMPARE[type(op)](), *ops[i + 1 :]]
                yield "compare", ast.Compare(node.left, other, node.comparators)
        case ast.BoolOp(op=op):
            yield (
                "and-or",
                ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values),
            )
        case ast.UnaryOp(op=ast.Not()):
            yield "drop-not", node.operand
        case ast.BinOp(op=op) if type(op) in ARITHMETIC and not (
            _joins(node.left) or _joins(node.right)
        ):
            yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in OPPOSITE:
            if field == "func":
                yield "min-max", _renamed(node, OPPOSITE[name])
        case ast.Call():
            yield from _swapped(node)
        case ast.AugAssign() if not _joins(node.value):
            other_op = ARITHMETIC[type(node.op)]()
            yield "arithmetic", ast.AugAssign(node.target, other_op, node.value)
    yield from parts(node, parent, field)
    if isinstance(node, ast.stmt) and _can_go(node, parent, field, assigned):
        yield "delete", ast.Pass()
    if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr) and (
        field in ("test", "ifs")
    ):
        yield "negate", ast.UnaryOp(ast.Not(), node)


def _joins(node: ast.AST) -> bool:
    """Whether `+` and `*` join there, so that another operator would fail at once."""
    return isinstance(node, SEQUENCES) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _renamed(node: ast.Name | ast.Attribute, name: str) -> ast.AST:
    if isinstance(node, ast.Name):
        return ast.Name(name, node.ctx)
    return ast.Attribute(node.value, name, node.ctx)


def _swapped(call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = ast.unparse(call.func).split(".")[-1]
    if len(call.args) < 2 or UNORDERED.fullmatch(name):
        return
    first, second, *rest = call.args
    alike = type(first) is type(second) and isinstance(first, SIMPLE)
    if alike and ast.dump(first) != ast.dump(second):
        yield "swap", ast.Call(call.func, [second, first, *rest], call.keywords)


def _can_go(stmt: ast.stmt, parent: ast.AST, field: str, assigned: set[str]) -> bool:
    """Whether the function still runs without a statement, and does less."""
    match stmt:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"))))
        ):
            return False  # a function that closes over its class cannot become one that does not
        case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom()):
            return True
        case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            return True
        case ast.Return():
            return not isinstance(parent, AnyFunction)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name in assigned
        case ast.Assign(targets=[ast.Tuple(elts=targets)]):
            return all(not isinstance(one, ast.Name) or one.id in assigned for one in targets)
        case ast.AnnAssign(target=ast.Attribute(), value=ast.AST()):
            return True
        case _:
            return False
