# SPDX-License-Identifier: Apache-2.0
"""Nothing outside a protocol's folder names a protocol, except the default in the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\b(router|early[-_ ]?hrmp|xcmp)(?!_rules)", re.IGNORECASE)
"""A protocol's name; that of a document of rules is none."""
DEFAULT = ("validator/config/table.py", 'DEFAULT_PROTOCOL: Final = "router"')


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("validator", "streaming"):
        for path in sorted((ROOT / folder).rglob("*")):
            place = path.relative_to(ROOT).as_posix()
            is_protocol = re.match(r"validator/protocols/(?!kit/)[^/]+/", place)
            if path.is_file() and "__pycache__" not in place and not is_protocol:
                yield place, path.read_text(encoding="utf-8", errors="replace")


def test_only_the_default_of_the_configuration_names_a_protocol() -> None:
    found = [(place, line.strip()) for place, text in texts() for line in text.splitlines() if NAME.search(line)]
    assert found == [DEFAULT]
