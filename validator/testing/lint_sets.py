# SPDX-License-Identifier: Apache-2.0
"""Finds the expressions of a module that are sets, as far as syntax shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

Names: TypeAlias = frozenset[str]
"""Names that hold sets in a scope."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_METHODS = ("union", "intersection", "difference", "symmetric_difference")
_TYPES = ("set", "frozenset", "Set", "AbstractSet", "FrozenSet", "MutableSet")


def walk(tree: ast.Module) -> Iterator[tuple[ast.AST, Names]]:
    """Yield every node of a module with the names that are sets in its scope."""
    yield from _walk(tree, _names_in(tree, frozenset()))


def _walk(node: ast.AST, names: Names) -> Iterator[tuple[ast.AST, Names]]:
    yield node, names
    for child in ast.iter_child_nodes(node):
        inside = _names_in(child, names) if isinstance(child, Function) else names
        yield from _walk(child, inside)


def is_set(node: ast.expr, names: Names) -> bool:
    """Return whether an expression is a set: a display, a comprehension, a call that makes one, or a name that only holds sets."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in _METHODS:
            return True
        case ast.BinOp(left=left, right=right, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return is_set(left, names) or is_set(right, names)
        case ast.IfExp(body=body, orelse=orelse):
            return is_set(body, names) or is_set(orelse, names)
        case ast.NamedExpr(value=value):
            return is_set(value, names)
    return False


def _names_in(scope: ast.AST, outside: Names) -> Names:
    """Return the names that are sets in a function or module: those only assigned sets, and outer ones that are not reassigned."""
    sets: set[str] = set()
    others: set[str] = set()
    if isinstance(scope, Function):
        arguments = (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)
        for argument in arguments:
            (sets if _is_set_type(argument.annotation) else others).add(argument.arg)
    for node in _own_nodes(scope):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                (sets if is_set(value, outside | sets) else others).add(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                (sets if _is_set_type(annotation) else others).add(name)
            case ast.AugAssign():
                pass  # a set stays a set
            case ast.Name(id=name, ctx=ast.Store()) if name not in sets:
                others.add(name)
    return frozenset((outside | sets) - others)


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope in source order, without those of inner functions and classes."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, Function | ast.ClassDef):
            yield from _own_nodes(child)


def _is_set_type(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _TYPES
        case ast.Subscript(value=value):
            return _is_set_type(value)
    return False
