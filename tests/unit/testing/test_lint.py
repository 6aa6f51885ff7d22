# SPDX-License-Identifier: Apache-2.0
"""Each rule of the deterministic zone finds its target, and allows the most similar valid code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.testing import remark
from validator.errors import UserError
from validator.testing.lint import RULES, lint_module, lint_source

# rule, code that it catches, similar code that it allows
SAMPLES = [
    ("clock", "import time", "import timeless"),
    ("clock", "from datetime import datetime", "from validator.plugin.api import BlockNumber"),
    ("randomness", "import random", "import randomness_of_mine"),
    ("randomness", "from secrets import token_bytes", "from hashlib import blake2b"),
    ("randomness", "import uuid", "import struct"),
    ("io", "from os import urandom", "from operator import itemgetter"),
    ("io", "import os.path", "import re"),
    ("io", "import sys", "import itertools"),
    ("io", "from pathlib import Path", "from functools import partial"),
    ("io", "import socket", "import json"),
    ("io", "import subprocess", "import enum"),
    ("io", "import threading", "import bisect"),
    ("io", "from asyncio import run", "from contextlib import suppress"),
    ("io", "import logging", "import heapq"),
    ("io", "import pickle", "import dataclasses"),
    ("io", "def f(): return open('x')", "def f(box): return box.open('x')"),
    ("io", "print(1)", "context.emit('printed')"),
    ("io", "async def f(): pass", "def f(): pass"),
    ("float", "x = 1.5", "x = 15"),
    ("float", "x = 2j", "x = '2j'"),
    ("float", "x = float(y)", "x = int(y)"),
    ("float", "x = list(map(float, y))", "isinstance(x, float)"),
    ("float", "class C:\n    x: float", "class C:\n    x: int"),
    ("float", "def f(x: float): pass", "def f(x: int): pass"),
    ("float", "x = y ** -1", "x = y ** 1"),
    ("float", "import math\nx = math.sqrt(4)", "import math\nx = math.isqrt(4)"),
    ("float", "from math import floor", "from math import gcd"),
    ("float", "from decimal import Decimal", "from fractions import Fraction"),
    ("division", "x = y / 2", "x = y // 2"),
    ("division", "x /= 2", "x //= 2"),
    ("division", "x = y / z", "x = y / 'schemas'"),
    ("division", "import operator\nf = operator.truediv", "import operator\nf = operator.floordiv"),
    ("set-order", "for x in {1, 2}: pass", "for x in (1, 2): pass"),
    ("set-order", "for x in set(y) | z: pass", "for x in sorted(set(y) | z): pass"),
    ("set-order", "x = [y for y in {z for z in a}]", "x = {y for y in {z for z in a}}"),
    ("set-order", "x = (f(y) for y in frozenset(z))", "x = sorted(f(y) for y in frozenset(z))"),
    ("set-order", "x = list(set(y))", "x = len(set(y))"),
    ("set-order", "x = b''.join({b'a', b'b'})", "x = b''.join(sorted({b'a', b'b'}))"),
    ("set-order", "def f(a):\n    s = set(a)\n    for x in s: pass", "def f(a):\n    s = sorted(set(a))\n    for x in s: pass"),
    ("set-order", "def f(s: set[int]):\n    return [*s]", "def f(s: list[int]):\n    return [*s]"),
    ("set-order", "def f(a):\n    s = {1}\n    s |= a\n    return tuple(s)", "def f(a):\n    s = {1}\n    s |= a\n    return 2 in s"),
    ("set-order", "x, y = {1, 2}", "x, y = 1, 2"),
    ("set-order", "x = dict.fromkeys({1, 2})", "x = dict.fromkeys([1, 2])"),
    ("set-order", "def f(a):\n    s = set(a)\n    return s.pop()", "def f(a):\n    s = list(a)\n    return s.pop()"),
    ("hash", "x = hash(y)", "x = y.hash()"),
    ("identity", "x = id(y)", "x = y.id"),
    ("dynamic", "eval('1')", "context.eval('1')"),
    ("dynamic", "exec('1')", "def f(exec_): return exec_('1')"),
    ("dynamic", "globals()['x']", "def f(globals_): return globals_['x']"),
    ("dynamic", "vars(x)", "x.vars"),
    ("dynamic", "x = f.__globals__", "x = f.__name__"),
    ("dynamic", "from importlib import import_module", "from typing import Any"),
    ("dynamic", "getattr(x, name)", "getattr(x, 'name')"),
    ("private", "def f(context): return context._host", "def f(context): return context.block"),
    ("private", "def f(context): return getattr(context, '_host')", "class C:\n    def f(self): return self._host"),
    ("private", "def f(x): return x.context._host", "def f(x): return x._replace(y=1)"),
    ("private", "def f(x):\n    y = x.make()\n    y._z = 1", "class C:\n    def f(cls):\n        y = cls()\n        y._z = 1"),
    ("private", "from validator.plugin.api import _x", "from validator.plugin.api import Context"),
    ("catch-all", "try: f()\nexcept: pass", "try: f()\nexcept ValueError: pass"),
    ("catch-all", "try: f()\nexcept BaseException: pass", "try: f()\nexcept Exception: pass"),
    ("catch-all", "try: f()\nexcept (KeyError, BaseException): pass", "try: f()\nexcept (KeyError, ValueError): pass"),
    ("global-state", "x = 0\ndef f():\n    global x\n    x = 1", "x = 0\ndef f():\n    x = 1"),
    ("global-state", "SEEN = []\ndef f(x): SEEN.append(x)", "def f(x):\n    seen = []\n    seen.append(x)"),
    ("global-state", "SEEN = {}\ndef f(x): SEEN[x] = 1", "SEEN = {}\ndef f(x): return SEEN[x]"),
    ("global-state", "SEEN = {}\ndef f(x): del SEEN[x]", "def f(seen, x): del seen[x]"),
    ("global-state", "COUNTS = {}\ndef f(x): COUNTS[x] += 1", "COUNTS = {}\ndef f(x): return COUNTS[x] + 1"),
    ("global-state", "class C:\n    n = 0\ndef f(): C.n = 1", "class C:\n    n = 0\ndef f(): return C.n"),
    ("global-state", "def f(seen=[]): return seen", "def f(seen=()): return seen"),
    ("global-state", "@lru_cache(maxsize=9)\ndef f(x): return x", "@wraps(g)\ndef f(x): return x"),
    ("import", "from validator.core.types import Para", "from validator.plugin.api import Para"),
    ("import", "import validator.plugin.registry", "import validator.plugin.api"),
    ("import", "from validator.plugin import registry", "from validator.plugin import api"),
    ("import", "from validator.config import Config", "from validator.testing import Harness"),
    ("import", "import streaming", "import validator_remark"),
    ("hook-default", "@hookimpl\ndef validator_handlers(config=None): pass", "@hookimpl\ndef validator_handlers(config): pass"),
    ("hook-default", "@hookimpl(optionalhook=True)\ndef h(*, config=None): pass", "def h(*, config=None): pass"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "caught", "near"), SAMPLES, ids=lambda value: value.replace("\n", "; ")[:40])
def test_rule_finds_its_target_and_allows_similar_code(rule: str, caught: str, near: str) -> None:
    assert {finding.rule for finding in lint_source(caught)} == {rule}
    assert lint_source(near) == []


def test_every_rule_has_sample() -> None:
    assert {rule for rule, _, _ in SAMPLES} == set(RULES) - {"allow"}


def test_finding_names_place_problem_and_alternative() -> None:
    (finding,) = lint_source("def f(x):\n    return x / 2\n", "plugin.py")
    assert str(finding) == (
        "plugin.py:2:12: division: true division gives a float: divide with // and document how it rounds"
    )


def test_findings_are_sorted_by_line_and_column() -> None:
    found = lint_source("x = (1.5, id(y))\nimport time\n")
    assert [(each.line, each.column, each.rule) for each in found] == [(1, 6, "float"), (1, 11, "identity"), (2, 1, "clock")]  # fmt: skip


def test_comment_with_reason_allows_one_rule_on_its_line() -> None:
    line = "import time  # validator: allow clock only its constants are used"
    assert lint_source(line) == []
    assert [each.rule for each in lint_source(line + "\nimport time")] == ["clock"]
    assert [each.rule for each in lint_source(line.replace("import time", "import time, random"))] == ["randomness"]


@pytest.mark.parametrize(
    ("comment", "what"),
    [
        ("# validator: allow clock", "the reason is missing"),
        ("# validator: allow clocks are fine", "there is no rule 'clocks'"),
        ("# validator: allow", "there is no rule ''"),
        ("# validator: allow allow because", "there is no rule 'allow'"),
    ],
)
def test_invalid_allowance_is_reported(comment: str, what: str) -> None:
    found = lint_source(f"import time  {comment}")
    assert [(each.rule, each.what) for each in found if each.rule == "allow"] == [("allow", what)]
    assert "clock" in {each.rule for each in found}


def test_unneeded_allowance_is_reported() -> None:
    (finding,) = lint_source("import re  # validator: allow clock it was needed once")
    assert (finding.rule, finding.what) == ("allow", "nothing on this line breaks the rule clock")


def test_allowance_in_string_is_ignored() -> None:
    assert [each.rule for each in lint_source("import time; x = '# validator: allow clock a reason'")] == ["clock"]


def test_invalid_python_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^plugin\.py:2: not Python: "):
        lint_source("x = 1\nx = = 2\n", "plugin.py")


def test_valid_plugin_has_no_findings() -> None:
    assert lint_module(remark.__name__) == []


def test_imports_from_own_package_are_linted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "linted_package"
    package.mkdir()
    (package / "__init__.py").write_text("import time\n")
    (package / "handlers.py").write_text("from linted_package import deep\nfrom . import other\n")
    (package / "deep.py").write_text("from linted_package.deeper import x\n")
    (package / "deeper.py").write_text("x = 1.5\n")
    (package / "other.py").write_text("import uuid\n")
    (package / "transport.py").write_text("import socket\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = lint_module("linted_package.handlers")
    assert [(Path(each.file).name, each.rule) for each in found] == [
        ("__init__.py", "clock"),
        ("deeper.py", "float"),
        ("other.py", "randomness"),
    ]
    assert "linted_package.deep" not in sys.modules
    with pytest.raises(UserError, match="its source cannot be read"):
        lint_module("linted_package.nowhere")
