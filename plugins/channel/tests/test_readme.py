# SPDX-License-Identifier: Apache-2.0
"""The examples of README.md run, its commands print what it shows, and its table names every module."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner
from validator_channel.command import app
from validator_channel.replay.cases import OPERATIONS

FOLDER = Path(__file__).resolve().parents[1]
README = FOLDER / "README.md"
PACKAGES = ("", "client", "gateway", "net")


def test_examples_run() -> None:
    results = doctest.testfile(str(README), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0


def test_every_module_has_a_row() -> None:
    table = README.read_text(encoding="utf-8").partition("## Where to look")[2]
    named = re.findall(r"`((?:\w+/)?\w+\.py)`", table)
    source = FOLDER / "src" / "validator_channel"
    modules = {str(path.relative_to(source)) for package in PACKAGES for path in (source / package).glob("*.py")}
    assert sorted(named) == sorted(each for each in modules if not each.endswith("__init__.py"))


def test_table_of_operations_is_complete() -> None:
    text = README.read_text(encoding="utf-8")
    table = text.partition("| `op` | `args` |")[2].partition("\n\n")[0]
    named = [
        name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    ]
    assert sorted(named) == sorted(OPERATIONS)


def test_commands_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in console_blocks() if " keys " in each]
    steps = re.findall(r"^\$ validator-channel (.+)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    assert len(steps) == 6
    for command, expected in steps:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, result.output
        assert doctest.OutputChecker().check_output(expected, result.output, doctest.ELLIPSIS), result.output


def console_blocks() -> list[str]:
    return re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
