# SPDX-License-Identifier: Apache-2.0
"""docs/first-channel.md, and the pages that continue it, work: the test runs every command with one job and compares the output."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, Command, Ran, blocks, commands, run

README = DOCS.parent / "README.md"
PAGE = DOCS / "first-channel.md"
CONTINUED = ("sending.md", "lane-state.md", "dead-letters.md", "wire-format.md")
"""Pages whose programs and commands run in the same folder afterwards, while the job runs."""
JAVA = "## In Java"
"""The heading of wire-format.md from which a JDK is needed."""


def commands_of(path: Path) -> list[Command]:
    found = [block for block in blocks(path.read_text(encoding="utf-8")) if block.language == "console"]
    return [command for block in found for command in commands(block)]


def test_readme_shows_commands_of_the_page_in_their_order() -> None:
    """So README's own chain is run by running the page: the folder is clean, and what README prints is what the page prints."""
    rest = iter(commands_of(PAGE))
    shown = [command for command in commands_of(README) if not command.line.startswith("make ")]
    assert len(shown) > 8
    for command in shown:
        same = next((each for each in rest if each.plain() == command.plain()), None)
        assert same is not None, f"{command.line}: not on {PAGE.name}, or in another order"
        assert command.prints in ("", same.prints)


def has_java_compiler() -> bool:
    listed = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=False).stdout
    return "jdk.compiler@" in listed


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run the pages with one job; without a JDK, up to the program that needs it."""
    texts = [path.read_text(encoding="utf-8") for path in (PAGE, *(DOCS / name for name in CONTINUED))]
    assert JAVA in texts[-1]
    if not has_java_compiler():
        texts[-1] = texts[-1].partition(JAVA)[0]
    parts = [block for text in texts for block in blocks(text) if block.language in {"console", "python", "java"}]
    return run(parts, tmp_path_factory.mktemp("page"), AS_ON_A_TERMINAL)


@pytest.mark.spark
@pytest.mark.broker
def test_pages_work(ran: Ran) -> None:
    ran.check()


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.skipif(not has_java_compiler(), reason="only a JRE is here: `java File.java` needs the compiler of a JDK")
def test_java_program_works(ran: Ran) -> None:
    assert "sent c3 01 " in ran.done.stdout
