# SPDX-License-Identifier: Apache-2.0
"""Pages that need nothing else work: the test writes every file, runs every command and compares the output with the page."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PORT = "9443"
"""The port of channel-peers.md, which another process may have."""


class Part(NamedTuple):
    """A page up to the text ``until``, at which its commands end or begin to need a job."""

    page: str
    until: str = ""
    before: tuple[str, ...] = tuple(AS_ON_A_TERMINAL)


WITHOUT_JOB = (
    Part("checks-in-ci.md"),
    Part("client.md"),
    Part("compare.md", "## 2."),
    Part("inspect.md"),
    Part("rules-by-height.md", "The [conformance suite]"),
    Part("trace-format.md", "A file holds one scenario"),
    Part("write-a-handler.md", "## 7.", ()),
)
WITH_JOB = (
    Part("channel-peers.md", "## In a program", ("export PYTHONPATH=",)),
    Part("compare.md"),
    Part("deploy-a-handler.md"),
    Part("real-data.md", "## What to seed"),
    Part("write-a-handler.md", "", ()),
)


def check(part: Part, folder: Path) -> None:
    text = (DOCS / part.page).read_text(encoding="utf-8")
    end = text.index(part.until) if part.until else len(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        shown = text[:end].replace(PORT, str(free.getsockname()[1]))
    found = blocks(shown)
    assert found
    run(found, folder, [*part.before]).check()


@pytest.mark.parametrize("part", WITHOUT_JOB, ids=lambda part: part.page)
def test_page_works(part: Part, tmp_path: Path) -> None:
    check(part, tmp_path)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("part", WITH_JOB, ids=lambda part: part.page)
def test_page_with_a_job_works(part: Part, tmp_path: Path) -> None:
    check(part, tmp_path)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        ('sed -i \'s/"used_bytes": 4/"used_bytes": 5/\' channel.json', "FAIL our-para/channel"),
        ("echo '[]' > channel.json", "nothing was checked"),
        ("sed -i s/2000/7/ good.json", "note: para 7 is not registered"),
        ("cp bad.json good.json", "HrmpWatermark/AheadRelayParent"),
    ],
)
def test_script_of_checks_in_ci_fails_for_everything_that_is_wrong(break_it: str, words: str, tmp_path: Path) -> None:
    found = blocks((DOCS / "checks-in-ci.md").read_text(encoding="utf-8"))
    files = [block for block in found if block.language not in ("console", "yaml")]
    assert run(files, tmp_path, AS_ON_A_TERMINAL).done.returncode == 0
    failed = run([], tmp_path, [*AS_ON_A_TERMINAL, break_it, "! sh checks.sh"]).done
    assert failed.returncode == 0, failed.stdout
    assert words in failed.stdout
