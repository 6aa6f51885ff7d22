# SPDX-License-Identifier: Apache-2.0
"""docs/upgrade.md works: a deployment is backed up, restored, rebuilt without its checkpoint, and moved, by the commands of the page."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, Block, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "upgrade.md"
DEPLOYMENT = """\
$ validator up
$ validator submit channel-requests channel-requests.jsonl
$ validator submit blocks blocks.jsonl
$ validator submit candidates candidates.jsonl
$ validator watch verdicts --count 4
"""
"""What docs/first-channel.md does before."""


def section(title: str) -> list[Block]:
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {title}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [block for block in blocks(found) if block.language == "console"]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_deployment_is_backed_up_restored_rebuilt_and_moved(tmp_path: Path) -> None:
    made = [*AS_ON_A_TERMINAL, "validator init first-channel > made.log", "cd first-channel"]
    run([Block("console", DEPLOYMENT, None)], tmp_path, made).check()
    folder = tmp_path / "first-channel"
    for title in ("Back up", "Restore", "Without a backup"):
        parts = section(title)
        assert parts, title
        run(parts, folder, AS_ON_A_TERMINAL).check()
    elsewhere = tmp_path / "another-machine"
    elsewhere.mkdir()
    shutil.move(tmp_path / "backup.tar.gz", elsewhere)
    folder.rename(tmp_path / "gone")
    run(section("Move to another machine"), elsewhere, AS_ON_A_TERMINAL).check()
