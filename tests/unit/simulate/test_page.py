# SPDX-License-Identifier: Apache-2.0
"""The page on `validator.simulate` lists its public names."""

from __future__ import annotations

import re
from pathlib import Path

from validator import simulate

PAGE = Path(__file__).resolve().parents[3] / "docs" / "plugin-testing.md"


def test_page_lists_every_public_name_of_simulate() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("| for | names of `validator.simulate` |\n|---|---|\n")
    table = rest.partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(simulate.__all__)
    assert all(hasattr(simulate, name) for name in simulate.__all__)
