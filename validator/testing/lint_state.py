# SPDX-License-Identifier: Apache-2.0
"""Finds state of a module that functions change and that outlives a message."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

_MUTABLE_CALLS: Final = ("list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict")
_MUTATING: Final = (
    *(
        "append",
        "extend",
        "insert",
        "remove",
        "pop",
        "popitem",
        "clear",
        "update",
        "setdefault",
        "add",
        "discard",
        "sort",
        "reverse",
    ),
    *("appendleft", "popleft", "extendleft", "rotate", "subtract", "difference_update", "intersection_update"),
    "symmetric_difference_update",
)
_CACHES: Final = ("cache", "lru_cache", "cached_property")


def of_state(node: ast.AST, module_names: frozenset[str]) -> Iterator[str]:
    """Yield descriptions of how a function changes state that outlives it."""
    if isinstance(node, ast.Global):
        yield f"global {', '.join(node.names)}"
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for decorator in node.decorator_list:
        name = last_name(decorator)
        if name in _CACHES:
            yield f"{node.name} caches its results between messages (@{name})"
    for default in (*node.args.defaults, *node.args.kw_defaults):
        if default is not None and _is_mutable(default):
            yield f"an argument of {node.name} has a mutable default, which outlives a message"
    for name in sorted({*_changed_in(node)} & module_names):
        yield f"{node.name} changes {name}, which belongs to the module"


def names_of_module(tree: ast.Module) -> frozenset[str]:
    """Return the names defined at module level: their values, if changed in place, outlive a message."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets):
                names.update(each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names.update(each.asname or each.name for each in imported)
    return frozenset(names)


def last_name(node: ast.expr) -> str:
    """Return the last name of an expression: of a call, a decorator or an exception class."""
    match node:
        case ast.Call(func=function):
            return last_name(function)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _changed_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the names from outside a function whose values it changes in place."""
    own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _MUTATING:
                pass
            case (
                ast.Subscript(value=owner, ctx=ast.Store() | ast.Del())
                | ast.Attribute(value=owner, ctx=ast.Store() | ast.Del())
            ):
                pass
            case _:
                continue
        while isinstance(owner, ast.Subscript | ast.Attribute):
            owner = owner.value
        if isinstance(owner, ast.Name) and owner.id not in own:
            yield owner.id


def _is_mutable(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and last_name(node) in _MUTABLE_CALLS
