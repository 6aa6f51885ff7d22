# SPDX-License-Identifier: Apache-2.0
"""Finds phrases that the project does not use: ``python -m tests.tidy.words`` prints each with its file, line and replacement.

`words.toml` lists the phrases, and the files and texts that may hold them. In Python files the checker searches comments and strings, in
all others the whole text. It skips code in backticks, expressions in f-strings, released versions in CHANGELOG.md, and strings that a
shipped conformance suite repeats: suites do not change for the sake of style.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from tests.tidy.tree import ROOT, tracked_names

LIST = Path(__file__).with_suffix(".toml")
SEARCHED = (".py", ".md", ".toml", ".in", ".avsc", "Makefile", ".ci/run")
"""Ends of the names of files that are searched."""

SUITES = ("validator/protocols/*/conformance/*.json", "plugins/*/src/*/conformance/*.json")
"""Shipped conformance suites; scenarios in `tests/` hold the same texts."""

QUOTED_CHARS_MIN = 20
"""A shorter string is not taken for a text of a suite."""

_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase to avoid, and what to write instead."""

    avoid: str
    pattern: re.Pattern[str]
    write: str


@dataclass(frozen=True, slots=True)
class Allowance:
    """Files that are not searched; with ``texts``, the only places in these files where phrases may be."""

    files: tuple[str, ...]
    texts: tuple[str, ...]
    reason: str

    def covers(self, name: str) -> bool:
        """Return whether a file, relative to the root, is among ``files``."""
        return any(fnmatch(name, pattern) for pattern in self.files)


@dataclass(frozen=True, slots=True)
class Hit:
    """A phrase in a file; ``line`` counts from 1."""

    file: str
    line: int
    found: str
    write: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.found!r}: write {self.write}"


def load(text: str) -> tuple[list[Phrase], list[Allowance]]:
    """Return the phrases and the allowances of a list in TOML."""
    content = tomllib.loads(text)
    phrases = [Phrase(each["avoid"], _pattern(each["avoid"], r"\s+"), each["write"]) for each in content["phrase"]]
    allowances = [
        Allowance(tuple(each["files"]), tuple(each.get("texts", ())), each["reason"]) for each in content["allow"]
    ]
    return phrases, allowances


def _pattern(avoid: str, space: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?<!-)(?:{avoid})(?![\w-])".replace(" ", space), re.IGNORECASE)


def search(name: str, text: str, phrases: Iterable[Phrase], allowed: Iterable[str] = ()) -> list[Hit]:
    """Return what a file has of the phrases, in the order of its lines, outside the ``allowed`` texts."""
    phrases = list(phrases)
    # most files have none in their whole text, with code and over the marks of comments: finding their prose takes far longer
    if not _pattern("|".join(phrase.avoid for phrase in phrases), r"[\s#]+").search(text):
        return []
    return sorted(
        (
            Hit(name, line + prose.count("\n", 0, match.start()), " ".join(match[0].split()), phrase.write)
            for line, prose in _prose(name, _without(text, allowed))
            for phrase in phrases
            for match in phrase.pattern.finditer(prose)
        ),
        key=lambda hit: (hit.line, hit.found),
    )


def _without(text: str, allowed: Iterable[str]) -> str:
    for each in allowed:
        text = text.replace(each, _blank(each))
    return text


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", "_", text)


def _prose(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the pieces of a file that are prose, each with the number of its first line."""
    if name == "CHANGELOG.md":
        headings = [match.start() for match in re.finditer(r"^## ", text, re.MULTILINE)]
        text = text[: headings[1]] if len(headings) > 1 else text
    pieces = _python_prose(text) if name.endswith(".py") else iter([(1, text)])
    for line, piece in pieces:
        yield line, re.sub(r"(`+)[^`]+?\1", lambda code: _blank(code[0]), piece)


def _python_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module, and its comments: those on consecutive lines as one piece."""
    comment, start, end = "", 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if line != end + 1:
                yield start, comment
                comment, start = "", line
            comment, end = f"{comment}\n{token.string.lstrip('#')}" if comment else token.string.lstrip("#"), line
        elif token.type in _STRINGS and not _quoted_by_suite(token.string):
            yield line, _without_expressions(token.string)
    yield start, comment


def _without_expressions(string: str) -> str:
    if not re.match(r"[rbu]*f", string, re.IGNORECASE):
        return string
    return re.sub(r"\{[^{}]*\}", lambda expression: _blank(expression[0]), string)


def _quoted_by_suite(string: str) -> bool:
    content = string.strip("\"'")
    return len(content) >= QUOTED_CHARS_MIN and content in _suites()


@cache
def _suites() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for pattern in SUITES for path in sorted(ROOT.glob(pattern)))


def search_tree(root: Path = ROOT) -> list[Hit]:
    """Return the hits of every tracked file."""
    phrases, allowances = load(LIST.read_text(encoding="utf-8"))
    hits = []
    for name in tracked_names(root):
        covering = [each for each in allowances if each.covers(name)]
        if not name.endswith(SEARCHED) or any(not each.texts for each in covering):
            continue
        text = (root / name).read_text(encoding="utf-8")
        hits += search(name, text, phrases, [each for allowance in covering for each in allowance.texts])
    return hits


def main() -> int:
    """Print every hit; return 1 if there is one."""
    hits = search_tree()
    for hit in hits:
        print(hit)
    if hits:
        print(f"{len(hits)} phrases to replace; {LIST.relative_to(ROOT)} has the list", file=sys.stderr)
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main())
