# SPDX-License-Identifier: Apache-2.0
"""Runs a page of docs/: writes its files, runs its commands and compares their output with the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs"

UP = "validator up"
IN_FIRST_TERMINAL = """up_log=$(mktemp)
COMMAND > $up_log 2>&1 &
until grep -q Ctrl-C $up_log; do kill -0 $! || { cat $up_log; exit 1; }; sleep 0.2; done
grep -v "^..:..:..  waiting  " $up_log
cd $first_folder"""
"""What `UP` becomes: it continues in the background, and the commands after it run as in a second terminal, in the first folder. On a busy
machine the job may wait for its broker, and say so."""
AS_ON_A_TERMINAL = ["exec 2>&1"]
"""For a page that shows what a person sees, standard error included."""


class Block(NamedTuple):
    """A fenced block, with the file that the preceding text names last."""

    language: str
    content: str
    file: str | None


class Command(NamedTuple):
    """A line after ``$`` with its output, in which ``...`` matches anything; a page need not print the output."""

    line: str
    prints: str

    def plain(self) -> str:
        """Return the command without its comment."""
        return re.sub(r"\s+# .*", "", self.line)


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = []
    end = 0
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        named = re.findall(r"`([\w./]+\.\w+)`", re.sub(r"\]\([^)]*\)", "", text[end : match.start()]))
        found.append(Block(match[1], match[2], named[-1] if named else None))
        end = match.end()
    return found


def commands(block: Block) -> list[Command]:
    """Return the commands of a ``console`` block."""
    parts = re.split(r"^\$ ", block.content, flags=re.MULTILINE)
    assert parts[0] == ""
    return [_command(part) for part in parts[1:]]


def _command(text: str) -> Command:
    """Split a command from its output. Lines after ``> `` continue the command, as a shell shows it."""
    first, *rest = text.split("\n")
    more = list(takewhile(lambda line: line.startswith("> "), rest))
    line = "\n".join([first, *(each.removeprefix("> ") for each in more)])
    return Command(line, "\n".join(rest[len(more) :]))


class Ran(NamedTuple):
    """Blocks that were run, and their output."""

    parts: list[Block]
    done: subprocess.CompletedProcess[str]

    def check(self) -> None:
        """Compare the output of each command with the page."""
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        expected = [command for block in self.parts if block.language == "console" for command in commands(block)]
        for command, text in zip(expected, self._printed(), strict=False):
            if command.prints:
                assert re.fullmatch(pattern(command.prints), text.rstrip("\n")), f"$ {command.line}\n{text}"

    def shell(self) -> list[str]:
        """Return the commands that put a new shell into the state in which this one ended."""
        folder, path = self._printed()[-1].splitlines()
        return [f"cd {shlex.quote(folder)}", f"export PYTHONPATH={shlex.quote(path)}"]

    def _printed(self) -> list[str]:
        """Return what each command has printed, without why it took long, which a busy machine makes it say."""
        printed = re.sub(
            r"^validator: (waiting for|registering schemas) .*\n", "", self.done.stdout, flags=re.MULTILINE
        )
        return re.split(r"^=== .*\n", printed, flags=re.MULTILINE)[1:]


def script(parts: list[Block], before: list[str]) -> str:
    """Return a shell program that writes the files and runs the commands, with a marker line around the output of each."""
    lines = ["set -e -o pipefail", *before, "first_folder=$PWD"]
    if any(start in block.content for block in parts for start in ("validator broker start", UP)):
        stop = ("kill $(jobs -p) 2> /dev/null", "wait", "validator broker stop > /dev/null 2>&1")
        lines.append(f"trap '{'; '.join(f'{each} || true' for each in stop)}' EXIT")
    number = 0
    for block in parts:
        if block.language != "console":
            # tests/test_contract.py and the like are in the project; files written after `cd ..` are next to it
            assert block.file is not None, block.content
            lines += [f"cat > {block.file} <<'END-OF-FILE'", block.content.rstrip("\n"), "END-OF-FILE"]
            continue
        for command in commands(block):
            lines += [f"echo '=== {number}'", _run_as_shown(command)]
            number += 1
    return "\n".join([*lines, "echo '=== end'", 'printf "%s\\n" "$PWD" "$PYTHONPATH"'])


def _run_as_shown(command: Command) -> str:
    line = command.plain()
    return IN_FIRST_TERMINAL.replace("COMMAND", line) if line in (UP, f"{UP} --rebuild") else command.line


def pattern(prints: str) -> str:
    """Return a regular expression for a command's output."""
    return r"(.|\n)*".join(re.escape(part) for part in prints.rstrip("\n").split("..."))


def run(parts: list[Block], folder: Path, before: list[str]) -> Ran:
    """Run blocks of the page in a folder, which also holds the state of broker and job."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-c", script(parts, before)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(parts, done)
