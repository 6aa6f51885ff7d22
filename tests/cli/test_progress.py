# SPDX-License-Identifier: Apache-2.0
"""What takes a while is shown with its seconds on a terminal, and leaves nothing in a pipe."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import pytest

from validator.cli import progress
from validator.cli.main import COMMANDS, _load, _plugin_commands
from validator.cli.progress import until_first, working
from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_terminal_shows_what_is_done_with_its_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    with working("counting sheep"):
        pass
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "counting sheep" in printed.err
    assert "0:00:00" in printed.err


def test_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with working("counting sheep"):
        pass
    assert capsys.readouterr() == ("", "")


def test_pipe_gets_a_reason_once_and_again_if_it_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "WHY_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "WHY_AGAIN_S", 0.0)
    reasons = iter(["it rains", "it rains", "the sun shines"])
    told = Event()

    def why() -> str:
        reason = next(reasons, None)
        if reason is None:
            told.set()
            raise UserError("nobody knows")
        return reason

    with progress.working("counting sheep", why):
        assert told.wait(30)
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["validator: counting sheep: it rains", "validator: counting sheep: the sun shines"]
    assert set(said[2:]) <= {"validator: counting sheep: nobody knows"}


def test_waiting_ends_with_the_first_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    chunks = until_first([[], ["one"], [], ["two"]], "waiting for sheep")
    assert next(chunks) == []
    assert next(chunks) == ["one"]
    shown = capsys.readouterr().err
    assert "waiting for sheep" in shown
    assert list(chunks) == [[], ["two"]]
    assert "waiting" not in capsys.readouterr().err


QUICK: Final = {
    "init": "copies four files",
    "explain": "reads pages that are installed",
    "rules list": "reads tables",
    "rules show": "reads tables",
    "rules diff": "reads tables",
    "prove": "reads one document",
    "verify": "reads one document",
    "plugins new": "writes a few files",
    "broker settings": "reads one file",
    "broker status": "looks at a process",
    "health": "asks an endpoint of this machine",
}
"""Commands that take less than two seconds, and why."""

LOGS: Final = {"up", "run", "console", "serve", "transport run", "messages run"}
"""Commands that write a log until they are stopped."""

SHOWS: Final = ("working", "counting", "jar_progress", "until_first", "Live", "Progress")


def commands() -> dict[str, Callable[..., Any]]:
    """Return the function behind every command."""
    found: dict[str, Callable[..., Any]] = {}

    def look(name: str, command: Any) -> None:
        nested = getattr(command, "commands", {})
        if command.callback is not None and (not nested or command.invoke_without_command):
            found[name] = inspect.unwrap(command.callback)
        for each in nested.values():
            look(f"{name} {each.name}", each)

    for name in [*COMMANDS, *_plugin_commands()]:
        look(name, _load(name))
    return found


def reached(function: Callable[..., Any]) -> set[str]:
    """Return the names that a function uses, and those of functions and classes of its module that it uses."""
    module = sys.modules[function.__module__]
    names: set[str] = set()
    todo: list[Any] = [function]
    while todo:
        tree = ast.parse(textwrap.dedent(inspect.getsource(todo.pop())))
        for name in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - names:
            names.add(name)
            used = getattr(module, name, None)
            if (inspect.isfunction(used) or inspect.isclass(used)) and used.__module__ == module.__name__:
                todo.append(used)
    return names


@pytest.mark.parametrize("name", sorted(commands()))
def test_command_shows_what_it_does_or_is_quick(name: str) -> None:
    shows = bool(reached(commands()[name]) & set(SHOWS))
    if name in LOGS:
        return
    assert shows != (name in QUICK), f"{name}: use validator.cli.progress, or say in QUICK why it takes less than 2 s"


def test_lists_name_commands_that_exist() -> None:
    assert set(QUICK) | LOGS <= set(commands())
