# SPDX-License-Identifier: Apache-2.0
"""The page about the console lists the address of every page."""

from __future__ import annotations

import re
from pathlib import Path

from validator.console.app import PAGES

DOCS = Path(__file__).resolve().parents[2] / "docs" / "console.md"


def test_every_page_has_its_address_in_the_docs() -> None:
    text = DOCS.read_text(encoding="utf-8").partition("## Addresses")[2].partition("\n## ")[0]
    listed = {each.partition("?")[0] for each in re.findall(r"`(/[^`]*)`", text)}
    assert {path.replace(":int}", "}") for path, _ in PAGES} <= listed
