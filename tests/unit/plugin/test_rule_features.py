# SPDX-License-Identifier: Apache-2.0
"""Every feature leads to its rules, every profile to what it changes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from validator.cli.rules import close_features_and_profiles, find_feature_or_profile
from validator.plugin.rule_pages import RulesPage, Sort, installed_pages
from validator.protocols.router.features import table


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
