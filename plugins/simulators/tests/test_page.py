# SPDX-License-Identifier: Apache-2.0
"""The page on `validator_simulators` lists its public names."""

from __future__ import annotations

import re
from pathlib import Path

import validator_simulators

PAGE = Path(__file__).resolve().parents[3] / "docs" / "plugin-testing.md"


def test_page_lists_every_public_name() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("| for | names of `validator_simulators` |\n|---|---|\n")
    table = rest.partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(validator_simulators.__all__)
    assert all(hasattr(validator_simulators, name) for name in validator_simulators.__all__)
