# SPDX-License-Identifier: Apache-2.0
"""The grammar of rule pages, the search for entries, and which rules a feature or profile leads to."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from validator.cli.rules import close_features_and_profiles, find_feature_or_profile
from validator.errors import UserError
from validator.plugin.rule_pages import (
    RuleReferences,
    RulesPage,
    Sort,
    anchor,
    close_names,
    find_entries,
    installed_pages,
    parse_page,
)
from validator.protocols.router.features import table

HEAD = "# Rules of mine\n\n- Page: `docs/mine.md`\n\nSome words.\n\n## Candidates\n\nMore words.\n\n"
ENTRIES = """\
### M-01 A candidate has a `size`

- Clause: `paper 1`, `paper 2, and more`
- Source: `notes 3`

It is
limited.

```
### R-9 no heading
- Clause: none
```

### M-I02 What size means

### M-V03 Sizes are counted

## Errors

### error Size/TooLarge

- Clause: `paper 1`
- Fields: `size: int`, `limit: dict[str, int]`
- Fields: none
- Rule: M-01, M-I02

Words.

- Clause: this is text
"""


@pytest.mark.parametrize(
    ("code", "sort"),
    [
        ("R-12", Sort.RULE),
        ("R-91a", Sort.RULE),
        ("I-06b", Sort.READING),
        ("H-I04", Sort.READING),
        ("PR-05", Sort.READING),
        ("H-PR05", Sort.READING),
        ("R-V03", Sort.INVARIANT),
    ],
)
def test_letters_of_a_code_say_its_sort(code: str, sort: Sort) -> None:
    (entry,) = parse_page("mine", HEAD + f"### {code} Title\n").entries
    assert (entry.name, entry.sort) == (code, sort)


def test_page_is_parsed_into_entries() -> None:
    page = parse_page("mine", HEAD + ENTRIES)
    assert (page.title, page.address) == ("Rules of mine", "docs/mine.md")
    rule, reading, invariant, error = page.entries
    assert [entry.sort for entry in page.entries] == [Sort.RULE, Sort.READING, Sort.INVARIANT, Sort.ERROR]
    assert (rule.name, rule.title, rule.group) == ("M-01", "A candidate has a `size`", "Candidates")
    assert rule.clauses == ("paper 1", "paper 2, and more")
    assert rule.sources == ("notes 3",)
    assert rule.text == "It is\nlimited.\n\n```\n### R-9 no heading\n- Clause: none\n```"
    assert rule.reference == "docs/mine.md#m-01-a-candidate-has-a-size"
    assert (reading.text, invariant.title) == ("", "Sizes are counted")
    assert (error.name, error.title, error.group) == ("Size/TooLarge", "", "Errors")
    assert error.fields == ((("size", "int"), ("limit", "dict[str, int]")), ())
    assert error.rules == ("M-01", "M-I02")
    assert error.text == "Words.\n\n- Clause: this is text"


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 0, "'# Title' in the first line"),
        ("words\n", 1, "'# Title' in the first line"),
        ("# T\n## G\n", 2, "then '- Page: `ADDRESS`'"),
        ("# T\n- Page: address\n", 2, "`TEXT`, `TEXT`, found 'address'"),
        ("# T\n- Page: `a`\n- Page: `b`\n", 3, "'- Page:' once"),
        ("# T\n- Page: `a`\n### M-01 x\n", 3, "'## Group'"),
        ("# T\n- Page: `a`\n# T\n", 3, "'# Title' in the first line"),
        (HEAD + "#### M-01 x\n", 11, "'### CODE Title'"),
        (HEAD + "### M-01\n", 11, "'### CODE Title', or error, reason or outcome"),
        (HEAD + "### m-01 small letters\n", 11, "'### CODE Title'"),
        (HEAD + "### error\n", 11, "'### error NAME'"),
        (HEAD + "### error Two words\n", 11, "'### error NAME'"),
        (HEAD + "### M-01 x\n### M-01 y\n", 12, "an entry that the page does not have yet"),
        (HEAD + "- Clause: `x`\n", 11, "'- Clause:' once, under the heading of an entry"),
        (HEAD + "### M-01 x\n- Clause: `x`\n- Clause: `y`\n", 13, "'- Clause:' once"),
        (HEAD + "### M-01 x\n- Fields: none\n", 12, "'- Fields:' under an error"),
        (HEAD + "### M-01 x\n- Clause: `x` and `y`\n", 12, "`TEXT`, `TEXT`"),
        (HEAD + "### error X\n- Clause: `x`\n", 12, "'- Fields:' for error X"),
        (HEAD + "### error X\n- Fields: `x`\n", 12, "'- Fields: `name: type`, ...'"),
    ],
)
def test_malformed_page_is_refused_with_line(text: str, line: int, expected: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_page("mine", text)
    assert str(raised.value).startswith(f"rules page of mine, line {line}: expected ")
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("heading", "fragment"),
    [
        ("error OutboundHrmp/CapacityExceeded", "error-outboundhrmpcapacityexceeded"),
        ("I-06b A request's age: stored, `>=`", "i-06b-a-requests-age-stored-"),
        ("R-V01 NeedsDispatch and next_round agree", "r-v01-needsdispatch-and-next_round-agree"),
        ("Two  spaces & a sign", "two--spaces--a-sign"),
        ("Größe", "größe"),
        ("What's new? (v2.0)", "whats-new-v20"),
    ],
)
def test_anchor_matches_github(heading: str, fragment: str) -> None:
    assert anchor(heading) == fragment


def test_repeated_headings_have_numbered_anchors() -> None:
    taken: dict[str, int] = {}
    assert [anchor(heading, taken) for heading in ("Errors", "errors!", "Rules", "Errors")] == [
        "errors",
        "errors-1",
        "rules",
        "errors-2",
    ]
    page = parse_page("mine", HEAD + "### error X\n- Fields: none\n## error X\n### error X!\n- Fields: none\n")
    assert [entry.reference.partition("#")[2] for entry in page.entries] == ["error-x", "error-x-2"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("m-i02", ["M-I02"]),
        ("SIZE/toolarge", ["Size/TooLarge"]),
        ("toolarge", ["Size/TooLarge"]),
        ("Paper  1", ["M-01", "Size/TooLarge"]),
        ("notes", ["M-01"]),
        ("paper 2, and", ["M-01"]),
        ("pap", []),
        ("notes M-V03", ["M-V03"]),
        ("words M-V03", []),
        ("", []),
    ],
)
def test_entries_are_found_by_code_kind_clause_and_section(wanted: str, names: list[str]) -> None:
    page = parse_page("mine", HEAD + ENTRIES)
    assert [entry.name for entry in find_entries([page], wanted)] == names


def test_close_names_keep_case_and_closest_comes_first() -> None:
    page = parse_page("mine", HEAD + ENTRIES)
    assert close_names([page], "size/tolarge") == ["Size/TooLarge"]
    assert close_names([page], "M-02")[0] in ("M-01", "M-I02")
    assert close_names([page], "something else") == []


def test_reference_prefers_protocol_of_lane() -> None:
    mine = parse_page("mine", HEAD + ENTRIES)
    other = parse_page("other", (HEAD + ENTRIES).replace("docs/mine.md", "docs/other.md"))
    references = RuleReferences([mine, other])
    fragment = "#error-sizetoolarge"
    assert references.of("Size/TooLarge", "paper 1", "other") == f"docs/other.md{fragment}"
    assert references.of("Size/TooLarge", "paper 1", "mine") == f"docs/mine.md{fragment}"
    assert references.of("Size/TooLarge", "paper 1", "gone") == f"docs/mine.md{fragment}"
    assert references.of("Size/TooLarge", "paper 1") == f"docs/mine.md{fragment}"
    assert references.of("Size/TooLarge", "paper 2") is None
    assert references.of("Size/Other", "paper 1", "mine") is None


@cache
def pages() -> tuple[RulesPage, ...]:
    return tuple(installed_pages(["router", "xcmp"])[0])


@pytest.mark.parametrize("feature", table.FEATURES, ids=lambda feature: feature.name)
def test_feature_leads_to_its_rules(feature: table.Feature) -> None:
    first, *parts = find_feature_or_profile(pages(), feature.name)
    assert (first.protocol, first.sort) == ("router", Sort.RULE)
    assert first.title.endswith(f"(`{feature.name}`)")
    assert first.text
    assert [part.name[:-1] for part in parts] == [first.name] * len(parts)


@pytest.mark.parametrize("profile", table.PROFILES)
def test_profile_lists_what_it_changes(profile: str) -> None:
    (entry,) = find_feature_or_profile(pages(), profile.upper())
    assert (entry.protocol, entry.sort, entry.name) == ("router", Sort.PROFILE, profile)
    names = list(table.PROFILES)
    before = table.PROFILES[names[names.index(profile) - 1]] if profile != table.SEED else frozenset[str]()
    held = table.PROFILES[profile]
    changes = dict.fromkeys(held - before, "adds") | dict.fromkeys(before - held, "removes")
    assert sorted(re.findall(r"^- (\w+) `(\w+)` \(R-", entry.text, re.MULTILINE)) == sorted(
        (sign, feature) for feature, sign in changes.items()
    )
    assert all(table.BY_NAME[feature].says in entry.text for feature in changes)


def test_feature_without_a_rule_still_has_its_sentence() -> None:
    bare = [replace(page, entries=()) for page in pages()]
    (entry,) = find_feature_or_profile(bare, "no_ttl")
    assert (entry.sort, entry.text) == (Sort.FEATURE, table.BY_NAME["no_ttl"].says)
    assert "`no_ttl` (no rule)" in find_feature_or_profile(bare, "router/2021-09")[0].text


def test_unknown_name_finds_nothing_but_what_is_close() -> None:
    assert find_feature_or_profile(pages(), "no_tll") == []
    assert close_features_and_profiles(pages(), "no_tll") == ["no_ttl"]
    assert close_features_and_profiles(pages(), "?") == []
