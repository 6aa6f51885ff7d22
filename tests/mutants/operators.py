# SPDX-License-Identifier: Apache-2.0
"""The small changes that a mutation run makes to a function, each as a replacement of a stretch of source text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

COMPARISONS: Final = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}  # fmt: skip
SUMS: Final = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
JUNCTIONS: Final = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
REMOVED: Final = (ast.Assign, ast.AugAssign, ast.Delete, ast.Raise)
"""Statements that are removed, in addition to calls whose result is not used."""


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """A change of one file: the text from ``start`` to ``end``, counted in bytes, becomes ``new``."""

    file: str
    line: int
    start: int
    end: int
    operator: str
    old: str
    new: str

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.file}:{self.line}"

    def apply(self, source: str) -> str:
        """Return the file's text with the change."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def mutants(file: str, source: str) -> list[Mutant]:
    """Return every mutant of a file, in the order of their places. Only the bodies of functions are changed."""
    return sorted(set(_Finder(file, source).find()))


class _Finder:
    def __init__(self, file: str, source: str) -> None:
        self._file = file
        self._tree = ast.parse(source)
        self._data = source.encode()
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line.encode()))

    def find(self) -> Iterator[Mutant]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef):
                yield from self._in_function(node)

    def _in_function(self, function: ast.FunctionDef) -> Iterator[Mutant]:
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        if isinstance(function.returns, ast.Constant) and function.returns.value is None:
            for statement in body[1:]:
                if not isinstance(statement, ast.FunctionDef | ast.Return):
                    yield self._inserted(statement, "return early", "return; ")
        for statement in body:
            for node in _inside(statement):
                yield from self._of(node)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield self._between("compare", left, right, *COMPARISONS[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SUMS and not _is_text(left, right):
                yield self._between("arithmetic", left, right, *SUMS[type(op)])
            case ast.BoolOp(op=op, values=values):
                for left, right in pairwise(values):
                    yield self._between("boolean", left, right, *JUNCTIONS[type(op)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._mutant("boolean", node, self._at(node), self._at(operand), "")
            case ast.Constant(value=bool() as value):
                yield self._whole("boolean", node, str(not value))
            case ast.Constant(value=int() as number):
                yield self._whole("arithmetic", node, str(number + 1))
            case ast.Expr(value=ast.Call()):
                yield self._whole("statement removed", node, "pass")
            case ast.stmt() if isinstance(node, REMOVED):
                yield self._whole("statement removed", node, "pass")
            case ast.Continue():
                yield self._whole("loop ended", node, "break")
            case _:
                return

    def _at(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _to(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _mutant(self, operator: str, node: ast.expr | ast.stmt, start: int, end: int, new: str) -> Mutant:
        return Mutant(self._file, node.lineno, start, end, operator, self._data[start:end].decode(), new)

    def _whole(self, operator: str, node: ast.expr | ast.stmt, new: str) -> Mutant:
        return self._mutant(operator, node, self._at(node), self._to(node), new)

    def _inserted(self, statement: ast.stmt, operator: str, new: str) -> Mutant:
        start = self._at(statement)
        if not isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete | ast.Raise):
            # a compound statement cannot follow on the same line
            new = new.rstrip("; ") + "\n" + " " * statement.col_offset
        return self._mutant(operator, statement, start, start, new)

    def _between(self, operator: str, left: ast.expr, right: ast.expr, old: str, new: str) -> Mutant:
        """Replace an operator between two operands; parentheses and comments may also be there."""
        begin, end = self._to(left), self._at(right)
        at = self._data[begin:end].find(old.encode())
        assert at >= 0, (self._file, left.lineno, old)
        return self._mutant(operator, left, begin + at, begin + at + len(old), new)


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(each, ast.JoinedStr | ast.List | ast.Tuple)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
        for each in operands
    )


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, except annotations, texts and inner functions."""
    if isinstance(node, ast.JoinedStr | ast.FunctionDef | ast.ClassDef | ast.Assert):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns"}:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _inside(each)
