# SPDX-License-Identifier: Apache-2.0
"""The shell completes commands, options and names of topics, in bash, zsh and fish."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
