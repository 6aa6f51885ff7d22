# SPDX-License-Identifier: Apache-2.0
"""Nothing outside a protocol's folder names a protocol, except the default in the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\b(router|early[-_ ]?hrmp|xcmp)(?!_rules)", re.IGNORECASE)
"""A protocol's name; that of a document of rules is none."""
DEFAULT = ("validator/config/table.py", 'DEFAULT_PROTOCOL: Final = "router"')
STRICT = ("core", "codec", "lanes", "plugin", "service")
"""Folders that do not even mention the default protocol's documents."""


def named(text: str, pattern: re.Pattern[str] = NAME) -> Iterator[str]:
    """Yield the lines that match."""
    return (line.strip() for line in text.splitlines() if pattern.search(line))


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("validator", "streaming"):
        for path in sorted((ROOT / folder).rglob("*")):
            place = path.relative_to(ROOT).as_posix()
            is_protocol = re.match(r"validator/protocols/(?!kit/)[^/]+/", place)
            if path.is_file() and "__pycache__" not in place and not is_protocol:
                yield place, path.read_text(encoding="utf-8", errors="replace")


def test_only_the_default_of_the_configuration_names_a_protocol() -> None:
    found = [(place, line) for place, text in texts() for line in named(text)]
    assert found == [DEFAULT]


@pytest.mark.parametrize("folder", STRICT)
def test_folder_does_not_mention_the_default_protocol(folder: str) -> None:
    word = re.compile(
        r"router(?!_rules 1\.1 step)", re.IGNORECASE
    )  # the order inside a block, which all protocols share
    found = [
        (place, line)
        for place, text in texts()
        for line in named(text, word)
        if place.startswith(f"validator/{folder}/")
    ]
    assert found == []


@pytest.mark.parametrize(
    "line", ["from validator.protocols.router import rules", 'protocol="xcmp"', "early-hrmp", "the Router"]
)
def test_search_finds_names(line: str) -> None:
    assert list(named(f"x\n{line}\n")) == [line]


def test_search_leaves_documents_alone() -> None:
    assert list(named("Source: router_rules 1.2, xcmp_rules 1.1.")) == []
