# SPDX-License-Identifier: Apache-2.0
"""The site of `make docs`: every page has a place in its navigation, and it is built without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

DOCS = ROOT / "docs"
PLACE = re.compile(r"^ +- (?P<page>[\w./-]+\.md)$", re.MULTILINE)


def test_every_page_has_one_place_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    places = PLACE.findall(text[text.index("\nnav:") : text.index("\nnot_in_nav:")])
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert len(places) == len(set(places))
    assert pages - set(places) == set()
    assert {place for place in set(places) - pages if not (ROOT / place).exists()} == set()


def test_every_kind_of_reader_is_named_on_the_first_page() -> None:
    first = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in (DOCS / "readers").glob("*.md"):
        assert f"(readers/{page.name})" in first


@pytest.mark.long
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs comes with the extra docs: `make docs`")
def test_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("index", "ARCHITECTURE", "readers/operators", "api/client", "source/examples/validator.toml"):
        assert (tmp_path / f"{name}.html").exists() or (tmp_path / f"{name}.md.html").exists(), name
    index = (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "OutboundHrmp/CapacityExceeded" in index
    assert "class DuplicateWindow" not in index, "the tree's own files are not searched"
