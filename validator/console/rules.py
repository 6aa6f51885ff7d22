# SPDX-License-Identifier: Apache-2.0
"""The rule behind an error, as `validator explain` has it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markupsafe import Markup

from validator.plugin.rule_pages import find_entries, installed_pages
from validator.visible import printable_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from validator.plugin.rule_pages import Entry, RulesPage


@cache
def pages() -> tuple[RulesPage, ...]:
    """Return the pages of all installed protocols; a page that cannot be read is left out."""
    return tuple(installed_pages()[0])


def entries_of(wanted: str, protocol: str | None = None) -> Sequence[Entry]:
    """Return the entries of a code, kind or clause, those of ``protocol`` first."""
    found = find_entries(pages(), wanted)
    return sorted(found, key=lambda entry: entry.protocol != protocol)


def prose(entry: Entry) -> Markup:
    """Return an entry's text, which is Markdown, as HTML; HTML in it is text."""
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(printable_lines(entry.text)))  # noqa: S704 - it escapes
