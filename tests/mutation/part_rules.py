"""Rules that take something away: a condition is decided, an expression becomes one of its parts.

They say most of what a hand would plant: a guard that never holds, a limit that is not heeded, a
term that is forgotten.
"""

import ast
from collections.abc import Iterator
from copy import copy

CONDITIONAL = ast.If | ast.IfExp | ast.While
LIMITS = ("min", "max", "minimum", "maximum")
JUMPS = ast.Return | ast.Raise | ast.Continue | ast.Break


def parts(node: ast.AST, parent: ast.AST, field: str) -> Iterator[tuple[str, ast.AST]]:
    """The rule and what stands in the node's place, for each bug of it."""
    if field == "ifs" or (field == "test" and isinstance(parent, CONDITIONAL)):
        yield from _decided(node, parent)
    match node:
        case ast.BoolOp(op=op, values=values):
            for rest in _without_one(values):
                yield "part", copy(rest[0]) if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.BinOp(left=left, right=right):
            yield "part", copy(left)
            yield "part", copy(right)
        case ast.Call(func=function, args=args):
            name = function.attr if isinstance(function, ast.Attribute) else ""
            name = function.id if isinstance(function, ast.Name) else name
            if name in LIMITS and len(args) > 1:
                yield from (("part", copy(one)) for one in args if not isinstance(one, ast.Starred))
            elif name == "where" and len(args) == 3:
                yield from (("part", copy(one)) for one in args[1:])
            elif name in ("sorted", "reversed"):
                yield "part", copy(args[0])
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            for i, target in enumerate(targets):
                if isinstance(target, ast.Attribute | ast.Subscript):
                    yield "part", _without_target(targets, values, i)
        case ast.AugAssign(target=target, value=value):
            yield "assign", ast.Assign([target], value)


def _decided(node: ast.AST, parent: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Constant):
        return
    # Without its one jump the branch is empty, too: another rule says that.
    jumps = isinstance(parent, ast.If) and len(parent.body) == 1 and not parent.orelse
    if not (jumps and isinstance(parent.body[0], JUMPS)):
        yield "never", ast.Constant(False)
    if not isinstance(parent, ast.While):
        yield "always", ast.Constant(True)


def _without_target(targets: list[ast.expr], values: list[ast.expr], i: int) -> ast.Assign:
    """`a.x, a.y = 1, 2` without one of its targets."""
    left = [*targets[:i], *targets[i + 1 :]]
    right = [*values[:i], *values[i + 1 :]]
    if len(left) == 1:
        return ast.Assign(left, right[0])
    return ast.Assign([ast.Tuple(left, ast.Store())], ast.Tuple(right, ast.Load()))


def _without_one[T](several: list[T]) -> Iterator[list[T]]:
    for i in range(len(several)):
        yield [*several[:i], *several[i + 1 :]]
