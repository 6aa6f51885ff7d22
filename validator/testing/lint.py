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
from typing import NamedTuple

from validator.errors import UserError
from validator.testing.lint_rules import RULES, found_in

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
