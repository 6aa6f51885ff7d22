# SPDX-License-Identifier: Apache-2.0
"""docs/checks-in-ci.md works: its files are written, its commands are run, and their output is compared with the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, Ran, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "checks-in-ci.md"
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")
SCRIPT = "sh checks.sh"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(blocks(TEXT), tmp_path_factory.mktemp("page"), AS_ON_A_TERMINAL)


def test_page_works(page: Ran) -> None:
    assert {block.file for block in page.parts if block.language == "json"} == {
        "channel.json",
        "STATE.json",
        "good.json",
        "bad.json",
    }
    page.check()


def test_job_runs_the_script_and_names_no_host() -> None:
    (job,) = [block.content for block in blocks(TEXT) if block.language == "yaml"]
    assert f"- run: {SCRIPT}\n" in job
    assert not re.search(r"://|\.org|\.io\b", job)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        ('sed -i \'s/"used_bytes": 4/"used_bytes": 5/\' channel.json', "FAIL our-para/channel"),
        ("echo '[]' > channel.json", "nothing was checked"),
        ("sed -i s/2000/7/ good.json", "note: para 7 is not registered"),
        ("cp bad.json good.json", "HrmpWatermark/AheadRelayParent"),
    ],
)
def test_script_fails_for_everything_that_is_wrong(break_it: str, words: str, tmp_path: Path) -> None:
    parts = [block for block in blocks(TEXT) if block.language not in ("console", "yaml")]
    done = run([*parts], tmp_path, [*AS_ON_A_TERMINAL]).done
    assert done.returncode == 0, done.stdout
    failed = run([], tmp_path, [*AS_ON_A_TERMINAL, break_it, f"! {SCRIPT}"]).done
    assert failed.returncode == 0, failed.stdout
    assert words in failed.stdout
