# SPDX-License-Identifier: Apache-2.0
"""The core contains no construct that could give different results in two runs; the check reads its syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "validator" / "core"

# None of these reads a clock, entropy, the environment or a file.
ALLOWED = {
    "__future__", "abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "enum", "functools",
    "hashlib", "heapq", "itertools", "operator", "re", "struct", "types", "typing",
}  # fmt: skip

BANNED_CALLS = {"float", "print", "open", "input", "id", "hash", "eval", "exec", "complex", "round", "globals", "vars"}


def offences(source: str) -> list[tuple[int, str]]:
    """Return (line, what) for each construct that is banned in the deterministic zone."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, f"import {name.name}") for name in names if not allowed(name.name)]
            case ast.ImportFrom(module=module, level=0) if not allowed(module or ""):
                found.append((node.lineno, f"from {module} import"))
            case ast.Constant(value=float() | complex()):
                found.append((node.lineno, f"float literal {node.value}"))
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                found.append((node.lineno, "true division"))
            case ast.Call(func=ast.Name(id=name)) if name in BANNED_CALLS:
                found.append((node.lineno, f"{name}()"))
            case ast.For(iter=iterated) | ast.comprehension(iter=iterated) if is_set(iterated):
                found.append((iterated.lineno, "iteration over a set"))
            case ast.Call(func=ast.Name(id="list" | "tuple" | "next" | "iter" | "enumerate"), args=[argument, *_]) if (
                is_set(argument)
            ):
                found.append((node.lineno, "order of a set"))
    return sorted(found)


def allowed(module: str) -> bool:
    return module in ALLOWED or module == "validator.core" or module.startswith("validator.core.")


def is_set(node: ast.expr) -> bool:
    """Return whether the syntax shows that an expression is a set; mypy and runs under several hash seeds cover sets behind names."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(attr="union" | "intersection" | "difference" | "symmetric_difference")):
            return True
        case ast.BinOp(left=left, right=right, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return is_set(left) or is_set(right)
    return False


def test_core_has_modules() -> None:
    assert list(CORE.rglob("*.py"))


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: path.relative_to(CORE).as_posix())
def test_module_of_core_has_no_banned_construct(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import time", "import time"),
        ("from datetime import date", "from datetime import"),
        ("from validator.codec import x", "from validator.codec import"),
        ("x = 1.5", "float literal 1.5"),
        ("x = a / b", "true division"),
        ("x /= b", "true division"),
        ("print(1)", "print()"),
        ("for x in {1, 2}: pass", "iteration over a set"),
        ("[x for x in set(y)]", "iteration over a set"),
        ("for x in set(y) | z: pass", "iteration over a set"),
        ("list(frozenset(y))", "order of a set"),
    ],
)
def test_banned_construct_is_found(source: str, what: str) -> None:
    assert offences(source) == [(1, what)]


def test_permitted_code_is_not_reported() -> None:
    assert offences("from validator.core.types import X\nfor x in sorted(set(y)): x // 2\n") == []
