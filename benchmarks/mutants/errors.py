"""Every small error that can be made in a file."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}

LEFT_ALONE = (ast.Raise, ast.JoinedStr, ast.Assert)
"""What is in these is a message, or a statement for the type checker."""

GUARDS = {"eq", "frozen", "gc", "kw_only", "repr", "slots", "strict"}
"""Arguments that change nothing but how an error of the code itself is noticed, or what an object costs."""


class Mutant(NamedTuple):
    """One error: `new` stands for `old`, which begins at byte `begin` of the file.

    `function` is the place of the function that it is in, or None.
    """

    path: str
    line: int
    begin: int
    old: str
    new: str
    function: str | None

    def __str__(self) -> str:
        old, new = (" ".join(text.split())[:120] for text in (self.old, self.new))
        return f"{self.path}:{self.line}: {old}  →  {new}"

    def source(self, root: Path) -> bytes:
        """Return the file with the error."""
        correct = (root / self.path).read_bytes()
        return correct[: self.begin] + self.new.encode() + correct[self.begin + len(self.old.encode()) :]


def mutants_of(path: Path, root: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file. Types, texts, messages and logging are left as they are."""
    source = path.read_bytes()
    starts = [0, *(place + 1 for place, byte in enumerate(source) if byte == ord("\n"))]
    name = str(path.relative_to(root))

    def visit(node: ast.AST, function: str | None) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = f"{name}:{min(one.lineno for one in (node, *node.decorator_list))}"
        for old, new in _errors(node):
            assert old.end_lineno is not None
            assert old.end_col_offset is not None
            begin, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            text = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
            yield Mutant(name, old.lineno, begin, source[begin:end].decode(), text, function)
        for child in _inside(node):
            yield from visit(child, function)

    yield from visit(ast.parse(source), None)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a node in which errors are made."""
    if isinstance(node, LEFT_ALONE):
        return
    for child in ast.iter_child_nodes(node):
        is_type = child is getattr(node, "annotation", None) or child is getattr(node, "returns", None)
        is_guard = isinstance(child, ast.keyword) and child.arg in GUARDS
        is_silent = isinstance(child, ast.stmt) and ast.unparse(child).startswith(("_log.", "log.", "if TYPE_CHECKING"))
        if not (is_type or is_guard or is_silent):
            yield child


def _errors(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Yield what an error replaces, which is the node or a condition in it, and by what."""
    if isinstance(node, ast.expr):
        yield from ((node, new) for new in _of_expression(node))
    elif isinstance(node, ast.stmt):
        yield from ((node, new) for new in _of_statement(node))
    conditions = [node.test] if isinstance(node, ast.If | ast.While) else getattr(node, "ifs", [])
    for test in conditions:
        if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield test, ast.UnaryOp(ast.Not(), test)


def _of_expression(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what an expression becomes: another operator, number or condition."""
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                yield _changed(node, ops=[*ops[:place], OPERATORS[type(op)](), *ops[place + 1 :]])
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield _changed(node, op=OPERATORS[type(op)]())
        case ast.BoolOp(values=values):
            for value in values:
                yield _changed(node, values=[one for one in values if one is not value])
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool() | int() | float() as value):
            yield ast.Constant(_other(value))
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield _changed(node, func=ast.Name(CALLS[name]))
        case ast.IfExp(body=body, orelse=orelse):
            yield _changed(node, body=orelse, orelse=body)


def _other(value: float) -> float:
    """Return the other truth value, the next number, or from 100 on twice the number."""
    if isinstance(value, bool):
        return not value
    return value + 1 if value < 100 else 2 * value


def _of_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield what a statement becomes: one that does nothing, or returns None."""
    match node:
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return()
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield ast.Pass()


def _changed(node: ast.expr, **fields: Any) -> ast.expr:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new
