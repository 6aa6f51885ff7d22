# SPDX-License-Identifier: Apache-2.0
"""The tree has no phrase of `words.toml`, and the checker finds phrases that would be there."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from tests.tidy.tree import ROOT, tracked_or_skip
from tests.tidy.words import LIST, load, search, search_tree

PHRASES, ALLOWANCES = load(LIST.read_text(encoding="utf-8"))


def found(name: str, text: str, *allowed: str) -> list[tuple[int, str]]:
    return [(hit.line, hit.found) for hit in search(name, text, PHRASES, allowed)]


def test_tree_has_no_listed_phrase() -> None:
    tracked_or_skip()
    assert [str(hit) for hit in search_tree()] == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.md", "A bug is mended.\n", [(1, "mended")]),
        ("a.md", "One.\nIt is gone for\n  good now.\n", [(2, "for good")]),
        ("a.md", "Told first.", [(1, "Told")]),
        ("a.md", "What is told,\nand mended.", [(1, "told"), (2, "mended")]),
        ("a.py", '"""What a lane\n\ntells.\n"""\n', [(3, "tells")]),
        ("a.py", "x = 1\n# gone for\n# good\n", [(2, "for good")]),
        ("a.py", "x = 1  # mended\ny = 2  # anew\n", [(1, "mended"), (2, "anew")]),
        ("a.py", 'raise ValueError(f"{count} were told")\n', [(1, "told")]),
        ("a.avsc", '{"doc": "What was told."}', [(1, "told")]),
    ],
)
def test_phrase_is_found_with_its_line(name: str, text: str, expected: list[tuple[int, str]]) -> None:
    assert found(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "Amended, recommended, retold."),
        ("a.md", "The option `--mend` and ``told``."),
        ("a.py", "told = mend(anew)\n"),
        ("a.py", 'f"{told[0]} records"\n'),
        ("a.py", "a = 1  # gone for\n\nb = 2  # good\n"),
        ("CHANGELOG.md", "## Unreleased\n- Fixed.\n## 1.0\n- Mended.\n"),
    ],
)
def test_other_text_is_not_found(name: str, text: str) -> None:
    assert found(name, text) == []


def test_unreleased_changes_are_searched() -> None:
    assert found("CHANGELOG.md", "# Changelog\n## Unreleased\n- Mended.\n## 1.0\n") == [(3, "Mended")]


def test_allowed_text_is_skipped_and_its_neighbours_are_not() -> None:
    assert found("a.py", '"block 3 was told"\n"told"\n', "block 3 was told") == [(2, "told")]


def test_hit_prints_file_line_phrase_and_replacement() -> None:
    (hit,) = search("a.md", "\nfor good", PHRASES)
    assert str(hit) == "a.md:2: 'for good': write permanently"


def test_text_of_a_suite_is_skipped_in_its_scenario() -> None:
    (suite,) = ROOT.glob("validator/protocols/router/conformance/notifications.json")
    text = "the recipient is told of a request"
    assert text in suite.read_text(encoding="utf-8")
    assert found("tests/scenarios.py", f'trace("{text}")\n# told\n') == [(2, "told")]


@pytest.mark.parametrize("allowance", ALLOWANCES, ids=lambda each: each.files[0])
def test_every_allowance_is_needed(allowance: object) -> None:
    assert isinstance(allowance, type(ALLOWANCES[0]))
    assert len(allowance.reason) > 10
    covered = [name for name in tracked_or_skip() if allowance.covers(name)]
    for pattern in allowance.files:
        assert any(fnmatch(name, pattern) for name in covered), f"no file is {pattern}"
    contents = [(name, (ROOT / name).read_text(encoding="utf-8")) for name in covered]
    for text in allowance.texts:
        assert any(text in content for _, content in contents), f"no file has {text!r}"
    assert any(found(name, content) for name, content in contents)
