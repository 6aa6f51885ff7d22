# SPDX-License-Identifier: Apache-2.0
"""The command line starts quickly, completes commands, and reports errors in one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from validator import __version__, exit_codes
from validator.cli.job_log import log_printer
from validator.cli.main import COMMANDS, app, main
from validator.errors import UserError


def modules_after(program: str) -> set[str]:
    listing = f"{program}\nimport sys; print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_imports_nothing_heavy_except_typer() -> None:
    ours = modules_after("from validator.cli.main import app; app(['--help'], standalone_mode=False)")
    typers = modules_after("import typer, rich")
    assert "typer" in ours
    more = {name for name in ours - typers if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in more if not name.startswith("typer.")} == {
        "validator", "validator.cli", "validator.cli.main", "validator.exit_codes", "validator.errors",
    }  # fmt: skip


def test_help_lists_every_command_in_order_of_the_table() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    places = [text.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"validator {name}" in result.output or f"{name} [OPTIONS]" in result.output


def test_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"{__version__}\n"


def run(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "validator", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"VALIDATOR_HOME": str(home)},
        check=False,
    )


def test_bad_input_is_one_line_on_stderr_and_exit_code_2(tmp_path: Path) -> None:
    done = run("topics", "list", home=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"validator: no broker runs in {tmp_path / 'broker'}: start broker and job with `validator up`, "
        "or the broker alone with `validator broker start`; a broker of another folder is found from there, or with "
        "VALIDATOR_HOME=FOLDER/.validator\n"
    )


def test_verbose_adds_the_traceback(tmp_path: Path) -> None:
    done = run("-v", "topics", "list", home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith("validator: no broker runs")


def test_misspelt_command_gets_a_suggestion(tmp_path: Path) -> None:
    done = run("brokr", home=tmp_path)
    assert done.returncode == 2
    assert "Did you mean 'broker'?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("state", "show", "--para", "x"), "Invalid value for '--para': expected an integer, found 'x'"),
        (
            ("state", "show", "--para", "-1"),
            "Invalid value for '--para': expected a number greater than or equal to 0, found '-1'",
        ),
        (("lanes", "resume", "--lane", "a", "--wait", "x"), "Invalid value for '--wait': expected a number, found 'x'"),
        (
            ("state", "show"),
            "validator: --lane: expected one of the configured chains (none), found none",
        ),
    ],
)
def test_wrong_option_says_what_was_expected_and_found(tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    done = run(*arguments, home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].removeprefix("Error: ") == line


def test_status_of_no_broker_exits_with_code_1(tmp_path: Path) -> None:
    done = run("broker", "status", "--json", home=tmp_path)
    assert done.returncode == 1
    assert '"running": false' in done.stdout


def test_bug_prints_its_traceback_and_exits_with_code_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise KeyError("a bug")

    monkeypatch.setitem(COMMANDS, "jars", (f"{__name__}:broken", ""))
    monkeypatch.setattr(sys.modules[__name__], "broken", broken, raising=False)
    monkeypatch.setattr(sys, "argv", ["validator", "jars"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == exit_codes.INTERNAL_ERROR == 70
    assert capsys.readouterr().err.splitlines()[-1] == "KeyError: 'a bug'"


def test_documented_exit_codes_are_all_there_are() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    table = text.partition("| exit code | means |")[2].partition("\n\n")[0]
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes


def test_commands_of_plugins_are_listed_and_cannot_replace_those_of_the_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = import_module("validator.cli.main")
    entries = [EntryPoint(name, "no_such_module:app", module.PLUGIN_COMMANDS) for name in ("mail", "run")]
    monkeypatch.setattr(module, "entry_points", lambda **wanted: entries)
    assert set(module._plugin_commands()) == {"mail"}
    assert module._plugin_help(entries[0]) == "Commands of the plugin mail."
    dist = SimpleNamespace(metadata=SimpleNamespace(json={"summary": "Letters between paras."}))
    assert (
        module._plugin_help(SimpleNamespace(name="mail", module="no_such_module", dist=dist))
        == "Letters between paras."
    )
    with pytest.raises(UserError, match=r"mail: importing no_such_module:app failed \(ModuleNotFoundError: "):
        module._target("mail")


def broken_plugin(folder: Path, group: str, text: str) -> None:
    """Write a distribution with a module, behind an entry point ``mail``."""
    (folder / "broken_mail.py").write_text(text, encoding="utf-8")
    info = folder / "broken_mail-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-mail\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{group}]\nmail = broken_mail:app\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('two\\nlines')", "(RuntimeError: two lines)"),
        ("import sys; sys.exit(3)", "(SystemExit: 3)"),
        ("def app(:", "(SyntaxError: invalid syntax (broken_mail.py, line 1))"),
        ("other = 1", "(AttributeError: module 'broken_mail' has no attribute 'app')"),
        ("app = 1", "expected a typer.Typer or a function as broken_mail:app, found int"),
        ("import typer; app = typer.Typer()", "it is no command (RuntimeError: "),
        ("def app(a: int | str): pass", "it is no command (AssertionError: "),
    ],
)
def test_plugin_command_whose_module_fails_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    broken_plugin(tmp_path, "validator.commands", text)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    code, stderr = ended("mail", env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL)
    assert (code, stderr.count("\n")) == (exit_codes.USER_ERROR, 1), stderr
    assert stderr.startswith("validator: plugin command mail: ")
    assert said in stderr
    assert ended("--version", env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL) == (exit_codes.OK, "")
    typed = {"_VALIDATOR_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "validator mail --"}
    program = Path(sys.executable).with_name("validator")
    done = subprocess.run(
        [program], env=os.environ | {"PYTHONPATH": path} | typed, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize("text", ["raise RuntimeError('two\nlines')", "import sys; sys.exit(3)", "other = 1"])
def test_job_of_a_plugin_that_cannot_be_imported_leaves_other_commands_as_they_are(text: str, tmp_path: Path) -> None:
    broken_plugin(tmp_path, "validator.jobs", text)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    assert ended("schemas", "list", env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL) == (0, "")


def ended(*arguments: str, **options: Any) -> tuple[int, str]:
    """Run the command in a process, and return its exit code and standard error."""
    program = [sys.executable, "-m", "validator", *arguments]
    done = subprocess.run(program, stderr=subprocess.PIPE, text=True, check=False, **options)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [["explain"], ["--help"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        assert ended(*arguments, stdout=full) == (
            exit_codes.USER_ERROR,
            "validator: output cannot be written: No space left on device\n",
        )


def test_folder_in_which_nothing_can_be_kept_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    command = ["broker", "start"]
    code, error = ended(*command, env=os.environ | {"VALIDATOR_HOME": str(file)})
    assert (code, error.count("\n")) == (exit_codes.USER_ERROR, 1)
    assert error.startswith(f"validator: {file}")
    assert error.endswith(": Not a directory\n")
    assert "Traceback" in ended("-v", *command, env=os.environ | {"VALIDATOR_HOME": str(file)})[1]


@pytest.mark.parametrize(
    "arguments", [["rules", "list"], ["--help"], ["explain"], ["simulate", "network", "--blocks", "50"]]
)
def test_output_that_nobody_reads_ends_as_a_shell_reports_it(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as pipe:
        assert ended(*arguments, stdout=pipe) == (exit_codes.PIPE_CLOSED, "")


def test_closed_output_is_dropped() -> None:
    assert ended("explain", preexec_fn=lambda: os.close(1)) == (exit_codes.OK, "")


def test_output_of_another_encoding_takes_every_character() -> None:
    names = os.environ | {"PYTHONIOENCODING": "ascii"}
    assert ended("simulate", "--help", stdout=subprocess.DEVNULL, env=names) == (exit_codes.OK, "")


PROGRAM = str(Path(sys.executable).with_name("validator"))
LINES = {
    "sc": ["schemas"],
    "dead-letters re": ["replay"],
    "watch ver": ["verdicts"],
    "watch --fo": ["--follow"],
    "submit ch": ["channel-requests"],
}
"""Words typed after ``validator``, with what the last one becomes."""


def completed(shell: str, **variables: str) -> list[str]:
    environment = {**os.environ, "_VALIDATOR_COMPLETE": f"complete_{shell}", **variables}
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, check=False)
    return done.stdout.split()


@pytest.mark.parametrize("words", LINES)
def test_bash(words: str) -> None:
    environment = {**os.environ, "PATH": f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"}
    typed = f"validator {words}"
    script = f"""eval "$(_VALIDATOR_COMPLETE=source_bash validator)"
        COMP_WORDS=({typed}) COMP_CWORD={len(typed.split()) - 1}
        _validator_completion validator
        printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == LINES[words], done.stderr


@pytest.mark.parametrize("words", LINES)
def test_zsh(words: str) -> None:
    assert f'"{LINES[words][0]}"' in " ".join(completed("zsh", _TYPER_COMPLETE_ARGS=f"validator {words}")).replace(
        "\\", ""
    ).replace(":", '"')


@pytest.mark.parametrize("words", LINES)
def test_fish(words: str) -> None:
    variables = {"_TYPER_COMPLETE_ARGS": f"validator {words}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert completed("fish", **variables)[0] == LINES[words][0]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_every_shell_is_printed(shell: str) -> None:
    environment = {**os.environ, "_VALIDATOR_COMPLETE": f"source_{shell}"}
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert "_VALIDATOR_COMPLETE" in done.stdout
    assert f"complete_{shell}" in done.stdout


OF_THE_JOB = {"event": "ready", "level": "info", "timestamp": "2026-11-25T10:00:00.000000Z"}


@pytest.mark.parametrize(("name", "level"), [("killed", "error"), ("taking over", "warning"), ("broker", "info")])
def test_what_the_command_logs_itself_has_level_and_time(
    capsys: pytest.CaptureFixture[str], name: str, level: str
) -> None:
    before = datetime.now(UTC)
    log_printer(as_json=True)({"event": name, "pid": 7})
    printed = json.loads(capsys.readouterr().err)
    assert (printed["event"], printed["pid"], printed["level"]) == (name, 7, level)
    assert abs(datetime.fromisoformat(printed["timestamp"]) - before) < timedelta(hours=1)


def test_events_of_the_job_keep_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    log_printer(as_json=True)(OF_THE_JOB)
    assert json.loads(capsys.readouterr().err) == OF_THE_JOB
    log_printer(as_json=False)(OF_THE_JOB)
    assert capsys.readouterr().err.startswith("10:00:00  ready")
