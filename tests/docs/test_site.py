# SPDX-License-Identifier: Apache-2.0
"""The site of `make docs`: every page has a place in its navigation, and it is built without a warning."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT


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
