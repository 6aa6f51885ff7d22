# SPDX-License-Identifier: Apache-2.0
"""The commands and programs of docs/http.md run against a server."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serve.conftest import Served

TOOLS = ("curl", "node")


@pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {' and '.join(TOOLS)}")
def test_page_of_http_works(served: Served, tmp_path: Path) -> None:
    text = (DOCS / "http.md").read_text(encoding="utf-8").replace("127.0.0.1:8481", f"127.0.0.1:{served.running.port}")
    _, *parts = blocks(text)  # the first block starts the server
    (tmp_path / "token").write_text(served.running.secrets.token)
    shown = [each for each in parts if each.language != "javascript" or each.file == "follow.mjs"]
    run(shown, tmp_path, AS_ON_A_TERMINAL).check()
