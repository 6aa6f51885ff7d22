# SPDX-License-Identifier: Apache-2.0
"""Makes text from strangers visible. Every cell of a table or a page that a record, a file or a plugin can fill
passes through here."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text with escapes in place of what is not visible: control characters, direction marks, line ends, odd spaces.

    Neither a terminal nor whoever reads a pipe line by line can be misled by the result.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_lines(text: str) -> str:
    """Return text whose lines are each `printable`; its line ends stay. For text that the product itself has put together."""
    return "\n".join(map(printable, text.split("\n")))


def cut(text: str, characters_max: int = 60) -> str:
    """Return text for an error, cut."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 3]}..."


def shown(value: object) -> str:
    """Return a value as an error shows it, cut."""
    try:
        return cut(repr(value))
    except ValueError:  # Python's own limit
        return "a number of more than 4,300 digits"
