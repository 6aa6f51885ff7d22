# SPDX-License-Identifier: Apache-2.0
"""Finds code in a plugin's source that does not belong in the deterministic zone, where lanes run.

The lint is enforced advice, not a sandbox. It checks syntax, module by module, and does not see what hides behind names; runs under several
hash seeds do (`validator.testing.points`). A comment allows an exception on its line: ``# validator: allow <rule> <reason>``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from importlib.util import find_spec, resolve_name
from typing import Final, NamedTuple, TypeAlias

from validator.errors import UserError

ALLOW = re.compile(r"#\s*validator:\s*allow\b[ \t]*(?P<rule>[a-z-]*)[ \t]*(?P<reason>.*)")


class Finding(NamedTuple):
    """A violation of a lint rule: its position (line and column from 1), the rule, the finding, and what to do instead."""

    file: str
    line: int
    column: int
    rule: str
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.rule}: {self.what}: {self.instead}"


def lint_source(source: str, file: str = "<source>") -> list[Finding]:
    """Return the findings in a module's source, by line and column. Raises `UserError` if it does not parse."""
    try:
        tree = ast.parse(source, file)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UserError(f"{file}:{line}: not Python: {error}") from None
    allowed, findings = _allowances(source, file)
    used: set[tuple[int, str]] = set()
    for line, column, rule, what in found_in(tree):
        if rule in allowed.get(line, ()):
            used.add((line, rule))
        else:
            findings.append(Finding(file, line, column + 1, rule, what, RULES[rule]))
    for line, rules in sorted(allowed.items()):
        findings += [
            Finding(file, line, 1, "allow", f"nothing on this line breaks the rule {rule}", RULES["allow"])
            for rule in rules
            if (line, rule) not in used
        ]
    return sorted(findings)


def lint_module(name: str) -> list[Finding]:
    """Return the findings in a module and in what it imports from its own top-level package. Raises `UserError`."""
    findings: list[Finding] = []
    for file, source in sorted(_sources_of(name).items()):
        findings += lint_source(source, file)
    return findings


def _sources_of(start: str) -> dict[str, str]:
    """Return, by file, the sources of a module and of all modules of its package that it imports, directly or indirectly."""
    package = start.partition(".")[0]
    sources: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            spec = sys.modules[name].__spec__ if name in sys.modules else None
        if spec is None or spec.origin is None or not hasattr(spec.loader, "get_source"):
            if name == start:
                raise UserError(f"{name}: its source cannot be read")
            continue  # an attribute of a module rather than a module
        source = spec.loader.get_source(name)  # type: ignore[union-attr]
        if source is None:
            raise UserError(f"{name}: its source cannot be read")
        sources[spec.origin] = source
        parent = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        waiting += [
            each for each in _imported(ast.parse(source), parent) if each == package or each.startswith(f"{package}.")
        ]
        if "." in name:
            waiting.append(name.rpartition(".")[0])  # packages run before their modules
    return sources


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            base = resolve_name(base, package) if node.level else base
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _allowances(source: str, file: str) -> tuple[dict[int, list[str]], list[Finding]]:
    allowed: dict[int, list[str]] = {}
    findings: list[Finding] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        match = ALLOW.search(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        line, column = token.start
        rule, reason = match["rule"], match["reason"].strip()
        if rule not in RULES or rule == "allow":
            findings.append(Finding(file, line, column + 1, "allow", f"there is no rule {rule!r}", RULES["allow"]))
        elif not reason:
            findings.append(Finding(file, line, column + 1, "allow", "the reason is missing", RULES["allow"]))
        else:
            allowed.setdefault(line, []).append(rule)
    return allowed, findings


Offence: TypeAlias = tuple[int, int, str, str]
"""Line from 1, column from 0, rule, finding."""
Reports: TypeAlias = Iterator[tuple[str, str]]
"""Rule and finding."""

PUBLIC: Final = (
    "validator.plugin.api",
    "validator.plugin.protocol_api",
    "validator.protocols.kit",
)
"""The modules that plugins may import (docs/plugins.md)."""

RULES: Final = {
    "allow": "write '# validator: allow <rule> <reason>' on the line in question, or remove the comment",
    "catch-all": "catch ContextError, Violation or exceptions that your own code raises",
    "clock": "time is the block number: context.block, context.session",
    "division": "divide with // and document how it rounds",
    "dynamic": "write the code out",
    "float": "use integers of the smallest unit",
    "global-state": "store it with context.write, or make it a constant",
    "hash": "use hashlib on canonical bytes",
    "hook-default": "remove the default: whether pluggy passes the argument depends on its version",
    "identity": "compare values, or assign explicit names",
    "import": "import only the public modules that docs/plugins.md lists (and, in tests, validator.testing)",
    "io": "a handler reads and acts only through its context",
    "private": "use the API that docs/plugins.md documents",
    "randomness": "derive the value from the message and the plugin's state",
    "set-order": "iterate over sorted(...), or use a dict, which is ordered",
}
"""Every rule with its hint."""

_MODULES: Final = {
    "clock": ("time", "datetime", "calendar", "zoneinfo", "sched", "timeit"),
    "randomness": ("random", "secrets", "uuid"),
    "io": (
        *("os", "sys", "io", "pathlib", "shutil", "tempfile", "glob", "fileinput", "platform", "locale", "getpass"),
        *(
            "socket",
            "ssl",
            "select",
            "selectors",
            "http",
            "urllib",
            "requests",
            "httpx",
            "ftplib",
            "smtplib",
            "socketserver",
        ),
        *(
            "subprocess",
            "multiprocessing",
            "threading",
            "_thread",
            "concurrent",
            "asyncio",
            "queue",
            "signal",
            "contextvars",
        ),
        *("logging", "warnings", "traceback", "gc", "weakref", "ctypes", "mmap", "fcntl", "resource"),
        *("pickle", "marshal", "shelve", "dbm", "sqlite3"),
    ),
    "dynamic": ("importlib", "pkgutil", "runpy", "builtins", "inspect"),
    "float": ("math", "cmath", "statistics", "decimal", "numpy", "pandas"),
}
"""Modules that a rule forbids entirely; decimal because its precision is a per-thread setting."""

_MATH_INTEGER: Final = ("comb", "factorial", "gcd", "isqrt", "lcm", "perm")
"""The integer functions of math."""

_CALLS: Final = {
    "float": ("float", "complex", "round"),
    "io": ("open", "input", "print", "breakpoint"),
    "hash": ("hash",),
    "identity": ("id",),
    "dynamic": ("eval", "exec", "compile", "globals", "locals", "vars", "dir", "__import__"),
}

_ORDERING: Final = ("list", "tuple", "iter", "next", "enumerate", "zip", "map", "filter", "dict", "bytes", "bytearray")
"""Calls whose result depends on the order of their argument."""

_ORDER_FREE: Final = ("sorted", "sum", "min", "max", "any", "all", "len", "set", "frozenset")
"""Calls whose result does not depend on the order of their argument."""

_NAMED_TUPLE: Final = ("_replace", "_asdict", "_fields", "_make")
"""Public members of named tuples, despite the underscore."""

_DUNDERS: Final = ("__dict__", "__globals__", "__builtins__", "__code__", "__closure__", "__subclasses__", "__mro__")


def found_in(tree: ast.Module) -> Iterator[Offence]:
    """Yield the offences of a module, in no particular order."""
    imported = _qualified(tree)
    instances = _own_instances(tree)
    own = names_of_module(tree)
    order_free = set(_order_free(tree))
    for node, sets in walk(tree):
        reports = [*_of_node(node, imported, instances), *(_of_order(node, sets) if node not in order_free else ())]
        reports += [("global-state", what) for what in of_state(node, own)]
        for rule, what in reports:
            yield node.lineno, node.col_offset, rule, what  # type: ignore[attr-defined]


def _of_node(node: ast.AST, imported: dict[str, str], instances: frozenset[str]) -> Reports:
    match node:
        case ast.Import(names=names):
            for each in names:
                yield from _of_import(each.name, None)
        case ast.ImportFrom(module=module, names=names, level=0):
            for each in names:
                yield from _of_import(module or "", each.name)
        case ast.Constant(value=float() | complex()):
            yield "float", f"the literal {node.value!r}"
        case ast.BinOp(op=ast.Div(), left=left, right=right) if not (_is_text(left) or _is_text(right)):
            yield "division", "true division gives a float"
        case ast.AugAssign(op=ast.Div(), value=value) if not _is_text(value):
            yield "division", "true division gives a float"
        case ast.BinOp(op=ast.Pow(), right=ast.UnaryOp(op=ast.USub())):
            yield "float", "a negative power gives a float"
        case ast.Call():
            yield from _of_call(node, imported)
        case ast.AnnAssign(annotation=ast.Name(id="float" | "complex" as name)):
            yield "float", f"a field of type {name}"
        case ast.arg(annotation=ast.Name(id="float" | "complex" as name)):
            yield "float", f"an argument of type {name}"
        case ast.Attribute():
            yield from _of_attribute(node, imported, instances)
        case ast.ExceptHandler(type=None):
            yield "catch-all", "a bare except catches the exceptions that end the message or the program"
        case ast.ExceptHandler(type=ast.expr() as caught) if "BaseException" in map(last_name, _alternatives(caught)):
            yield "catch-all", "except BaseException catches the exceptions that end the message or the program"
        case ast.AsyncFunctionDef(name=name):
            yield "io", f"{name} is a coroutine function"
        case ast.FunctionDef(name=name, args=arguments, decorator_list=decorators):
            if any(last_name(each) == "hookimpl" for each in decorators) and (
                arguments.defaults or any(each is not None for each in arguments.kw_defaults)
            ):
                yield "hook-default", f"an argument of the hook {name} has a default"


def _of_import(module: str, name: str | None) -> Reports:
    shown = f"import {module}" if name is None else f"from {module} import {name}"
    first = module.partition(".")[0]
    if module == "math" and (name is None or name in _MATH_INTEGER):
        return  # the members that are used are checked
    for rule, modules in _MODULES.items():
        if first in modules:
            yield rule, shown
            return
    if first == "streaming" or (first == "validator" and not _is_public(module, name)):
        yield "import", shown
    elif first == "validator" and name is not None and _is_private(name):
        yield "private", shown


def _is_public(module: str, name: str | None) -> bool:
    return (
        module in PUBLIC
        or f"{module}.{name}" in PUBLIC
        or module == "validator.testing"
        or module.startswith("validator.testing.")
    )


def _of_call(node: ast.Call, imported: dict[str, str]) -> Reports:
    function, arguments = node.func, node.args
    if not isinstance(function, ast.Name):
        return
    name = function.id
    for rule, names in _CALLS.items():
        if name in names and name not in imported:
            yield rule, f"{name}()"
    if name not in ("isinstance", "issubclass") and any(
        isinstance(each, ast.Name) and each.id in ("float", "complex") for each in arguments
    ):
        yield "float", f"{name}() with a float type"
    if name in ("getattr", "setattr", "delattr", "hasattr") and len(arguments) > 1:
        match arguments[1]:
            case ast.Constant(value=str() as attribute):
                if _is_private(attribute):
                    yield "private", f"{name}() of {attribute}"
            case _:
                yield "dynamic", f"{name}() of a computed name"


def _of_attribute(node: ast.Attribute, imported: dict[str, str], instances: frozenset[str]) -> Reports:
    owner, name = node.value, node.attr
    module = imported.get(owner.id, "") if isinstance(owner, ast.Name) else ""
    if name in _DUNDERS:
        yield "dynamic", f"the attribute {name}"
    elif _is_private(name) and not (isinstance(owner, ast.Name) and owner.id in instances):
        yield "private", f"the attribute {name}"
    if module == "math" and name not in _MATH_INTEGER:
        yield "float", f"math.{name} is or gives a float"
    if module == "operator" and name in ("truediv", "itruediv"):
        yield "division", f"operator.{name} gives a float"


def _of_order(node: ast.AST, sets: Names) -> Reports:
    """Yield the uses that depend on the order of a set."""
    match node:
        case ast.For(iter=iterated) if is_set(iterated, sets):
            yield "set-order", "a loop over a set"
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp() if any(
            is_set(each.iter, sets) for each in node.generators
        ):
            yield "set-order", "a comprehension over a set"
        case ast.Starred(value=value) | ast.YieldFrom(value=value) if is_set(value, sets):
            yield "set-order", "unpacking the items of a set"
        case ast.Assign(targets=[ast.Tuple() | ast.List(), *_], value=value) if is_set(value, sets):
            yield "set-order", "unpacking a set into names"
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _ORDERING:
            if any(is_set(each, sets) for each in arguments):
                yield "set-order", f"{name}() of a set"
        case ast.Call(func=ast.Attribute(attr="join" | "extend" | "fromkeys" as name), args=[argument]):
            if is_set(argument, sets):
                yield "set-order", f"{name}() of a set"
        case ast.Call(func=ast.Attribute(value=owner, attr="pop"), args=[]) if is_set(owner, sets):
            yield "set-order", "pop() of a set"


def _qualified(tree: ast.Module) -> dict[str, str]:
    """Return the qualified names behind the names that a module imports or defines."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=imported):
                names.update({each.asname or each.name.partition(".")[0]: each.name for each in imported})
            case ast.ImportFrom(module=module, names=imported):
                names.update({each.asname or each.name: f"{module}.{each.name}" for each in imported})
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] = name
    return names


def _own_instances(tree: ast.Module) -> frozenset[str]:
    """Return the names of a module's own objects: self, cls, its classes, and variables that get new instances of them."""
    classes = {"cls", *(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))}
    made = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and last_name(node.value.func) in classes
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset({"self", *classes, *made})


def _is_text(node: ast.expr) -> bool:
    """Return whether an operand is text: then / joins paths."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _order_free(tree: ast.Module) -> list[ast.expr]:
    """Return the arguments whose order is lost at once, e.g. comprehensions that are sorted, summed or turned into a set."""
    return [
        argument
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and not node.keywords and last_name(node) in _ORDER_FREE
        for argument in node.args
    ]


def _alternatives(caught: ast.expr) -> list[ast.expr]:
    return caught.elts if isinstance(caught, ast.Tuple) else [caught]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in _NAMED_TUPLE


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
