# SPDX-License-Identifier: Apache-2.0
"""Every hook is on the pages of plugins with its signature, has an example that runs and fits, and has a test here."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import re
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.core import limits
from validator.core.handlers.context import Context
from validator.core.handlers.weights import CALL_WEIGHTS
from validator.core.outcomes import DispatchOutcome
from validator.plugin import hookspecs
from validator.plugin.api import API_VERSION, Manifest, OutputReader, Transport, TransportContext
from validator.plugin.hookspecs import GROUPS
from validator.plugin.registry import Found, Plugin, handlers_of, protocols_of, register, transports_of
from validator.testing import Harness
from validator.testing.lint import PUBLIC

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "plugins.md"
TABLES = "".join(
    (DOCS / name).read_text(encoding="utf-8") for name in ("plugins.md", "handlers.md", "write-a-transport.md")
)
HOOKS = {name: group for group in GROUPS.values() for name in dir(group) if name.startswith("validator_")}


def signature(function: Any, *, typed: bool) -> str:
    """Return a signature as the page writes it, without ``self``."""
    full = inspect.signature(function)
    parameters = list(full.parameters.values())[1:]
    arguments = ", ".join(
        f"{each.name}: {each.annotation}" if typed else str(each.replace(annotation=each.empty)) for each in parameters
    )
    return f"{function.__name__}({arguments})" + (f" -> {full.return_annotation}" if typed else "")


def rows(heading: str) -> Iterator[list[str]]:
    """Yield the rows of the pages' table with this heading, with stripped cells."""
    lines = iter(TABLES.splitlines())
    for line in lines:
        if line.startswith(f"| {heading} |"):
            next(lines)
            break
    else:
        raise AssertionError(f"no page has a table {heading}")
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# --- the page ---


def test_every_hook_is_on_page_with_signature_and_summary() -> None:
    on_page = {code(cells[0])[0]: (cells[1], cells[2]) for cells in rows("hook")}
    expected = {}
    for name, group in HOOKS.items():
        hook = getattr(group, name)
        own = [key.removeprefix("validator.") for key, each in GROUPS.items() if hasattr(each, name)]
        groups = "all" if len(own) == len(GROUPS) else ", ".join(own)
        expected[signature(hook, typed=True)] = (groups, inspect.getdoc(hook).splitlines()[0])
    assert on_page == expected


def test_every_group_is_on_page() -> None:
    assert [code(cells[0])[0] for cells in rows("group")] == list(GROUPS)


@pytest.mark.parametrize("kind", [Context, OutputReader, TransportContext])
def test_every_context_member_is_on_page(kind: type[Any]) -> None:
    on_page = [member for cells in rows(f"member of `{kind.__name__}`") for member in code(cells[0])]
    names = {name for name in (*dir(kind), *getattr(kind, "__annotations__", ())) if not name.startswith("_")}
    expected = {
        signature(getattr(kind, name), typed=False) if inspect.isfunction(getattr(kind, name, None)) else name
        for name in names
    }
    assert sorted(on_page) == sorted(expected)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_on_page(module: str) -> None:
    public = import_module(module)
    items = re.findall(r"^- \*\*.+(?:\n  .+)*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name for item in items if code(item)[:1] == [module] for name in code(item)[1:]}
    assert sorted(listed) == sorted(public.__all__), "docs/plugins.md, The API"
    assert all(hasattr(public, name) for name in public.__all__)


def test_numbers_on_page_match_program() -> None:
    assert {code(cells[0])[0]: int(cells[1]) for cells in rows("call weight")} == asdict(CALL_WEIGHTS)
    on_page = {code(cells[0])[0]: int(cells[1].partition(" ")[0]) for cells in rows("limit")}
    assert on_page == {name: value for name, value in vars(limits).items() if name.startswith("HANDLER_")}
    assert [code(cells[0])[0] for cells in rows("outcome")] == [outcome.value for outcome in DispatchOutcome]
    major, minor = API_VERSION
    assert f"Version {major}.{minor}. A plugin runs" in PAGE.read_text(encoding="utf-8")


def test_example_on_page_runs() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 10
    assert failed == 0


# --- the specifications ---


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_names_its_first_api_version(name: str) -> None:
    first = inspect.getdoc(getattr(HOOKS[name], name)).splitlines()[0]
    since = re.search(r" Since API ([0-9]+)\.([0-9]+)\.$", first)
    assert since, first
    assert (int(since[1]), int(since[2])) <= API_VERSION


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_a_test(name: str) -> None:
    assert callable(globals().get(f"test_{name}")), f"write test_{name} in this file"


def example(name: str) -> Any:
    """Run a hook's example and return the function that it marks."""
    hook = getattr(HOOKS[name], name)
    namespace: dict[str, Any] = {}
    found = doctest.DocTestParser().get_doctest(inspect.getdoc(hook), namespace, name, hookspecs.__file__, 0)
    assert found.examples, f"{name} has no example"
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        result = doctest.DocTestRunner().run(found, clear_globs=False)
    assert result.failed == 0, output.getvalue()
    return found.globs[name]


def of_examples(group: str, name: str, manifest: Any = None) -> Plugin:
    """Return the plugin that the examples of a group's hooks form together."""
    module = SimpleNamespace(**{name: example(name)}, validator_manifest=manifest or example("validator_manifest"))
    entry = module.validator_manifest().name
    return register(Found(group, entry, "example", "example", "1.0.0", "example"), module)


def test_validator_manifest() -> None:
    assert example("validator_manifest")() == Manifest("remark", "1.0.0", (2, 0))


def test_validator_handlers() -> None:
    plugin = of_examples("validator.handlers", "validator_handlers")
    (bound,) = handlers_of(plugin, "{}")
    assert (bound.name, bound.handler.kind, bound.handler.prefix) == ("remark@1.0.0", "remark", b"\x00\x01")
    chain = Harness(plugin)
    assert chain.send(b"\x00\x01hello").outcome == "ok"
    assert list(chain.state.values()) == [b"hello"]


def test_validator_protocols() -> None:
    (definition,) = protocols_of(of_examples("validator.protocols", "validator_protocols"))
    assert definition.name == "protocol-of-mine"


def test_validator_transports(capsys: pytest.CaptureFixture[str]) -> None:
    (transport,) = transports_of(of_examples("validator.transports", "validator_transports"), "{}")
    assert (transport.name, transport.topics) == ("print", ("verdicts",))
    context = SimpleNamespace(records=[("verdicts", b"k", b"v"), None], acknowledged=0, stopping=False)

    def receive(timeout_s: float) -> Any:
        record = context.records.pop(0)
        context.stopping = not context.records
        return record

    def acknowledge() -> None:
        context.acknowledged += 1

    context.receive, context.acknowledge = receive, acknowledge
    assert isinstance(transport, Transport)
    transport.run(context)
    assert capsys.readouterr().out == "('verdicts', b'k', b'v')\n"
    assert context.acknowledged == 1
