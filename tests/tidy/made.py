# SPDX-License-Identifier: Apache-2.0
"""Every file that is made of another one: `make generate` writes those that differ, and a test compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from deploy import generate as deployed
from tests.router import generate as router_suite
from tests.tidy import change_page, dashboard, image_requirements, metric_page, record_page, rule_pages
from tests.tidy.tree import ROOT

MAKERS = (change_page, dashboard, image_requirements, metric_page, record_page, rule_pages, router_suite, deployed)


def made() -> Iterator[tuple[Path, str]]:
    """Yield each file and its text."""
    for maker in MAKERS:
        yield from maker.made().items()
    for path in sorted(ROOT.glob("plugins/*/tests/[!t]*_suite.py")):
        sys.path.insert(0, str(path.parent))
        yield from import_module(path.stem).made().items()


def outdated() -> Iterator[tuple[Path, str]]:
    """Yield each file that does not exist or has another text, with the text that it should have."""
    for path, text in made():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, text


if __name__ == "__main__":
    for path, text in outdated():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
