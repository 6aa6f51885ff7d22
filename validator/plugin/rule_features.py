# SPDX-License-Identifier: Apache-2.0
"""Explains features and profiles, the rules that chains choose by height, by means of a protocol's page of rules.

The title of a rule that a feature brings ends with the feature's name: ``### R-83 Requests do not expire (`no_ttl`)``. Its parts have the
same code and a letter: ``R-91a``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from validator.plugin.protocol_parts import RuleProfiles
from validator.plugin.rule_pages import LANE, Entry, RulesPage, Sort
from validator.plugin.runtime import installed_protocol

_NAMED_FEATURE: Final = re.compile(r"\(`([^`]+)`\)$")


def find_feature_or_profile(pages: Iterable[RulesPage], wanted: str) -> list[Entry]:
    """Return what explains a feature, its rules, or a profile, an entry that lists what it changes; case is ignored.

    A feature that no rule of the page names is an entry with its sentence alone.
    """
    key = wanted.strip().casefold()
    found: list[Entry] = []
    for page, profiles in _with_profiles(pages):
        found += [entry for name in profiles.features if name == key for entry in _feature(page, profiles, name)]
        found += [_profile(page, profiles, name) for name in profiles.profiles if name == key]
    return found


def close_features_and_profiles(pages: Iterable[RulesPage], wanted: str) -> list[str]:
    """Return at most three names of features and profiles similar to ``wanted``, the closest first."""
    known = {name: None for _, profiles in _with_profiles(pages) for name in (*profiles.features, *profiles.profiles)}
    return get_close_matches(wanted.strip().casefold(), known, 3)


def _with_profiles(pages: Iterable[RulesPage]) -> Iterator[tuple[RulesPage, RuleProfiles]]:
    for page in pages:
        definition = None if page.protocol == LANE else installed_protocol(page.protocol)
        if definition is not None and definition.rule_profiles is not None:
            yield page, definition.rule_profiles


def _rules_of(page: RulesPage, feature: str) -> list[Entry]:
    """Return the rules that a page has for a feature: those that name it, and their parts."""
    codes = [
        entry.name for entry in page.entries if (named := _NAMED_FEATURE.search(entry.title)) and named[1] == feature
    ]
    return [
        entry for entry in page.entries if any(re.fullmatch(rf"{re.escape(code)}[a-z]?", entry.name) for code in codes)
    ]


def _feature(page: RulesPage, profiles: RuleProfiles, name: str) -> list[Entry]:
    alone = Entry(page.protocol, Sort.FEATURE, name, "", "Features", page.address, text=profiles.features[name])
    return _rules_of(page, name) or [alone]


def _profile(page: RulesPage, profiles: RuleProfiles, name: str) -> Entry:
    names = list(profiles.profiles)
    at = names.index(name)
    held = profiles.profiles[name]
    before = profiles.profiles[names[at - 1]] if at else frozenset[str]()
    lines = [
        f"- {sign} `{feature}` ({', '.join(entry.name for entry in _rules_of(page, feature)) or 'no rule'}): {says}"
        for sign, changed in (("adds", held - before), ("removes", before - held))
        for feature, says in profiles.features.items()
        if feature in changed
    ]
    since = f"Changes since `{names[at - 1]}`:" if at else "Features:"
    text = "\n".join([since, "", *lines]) if lines else "The protocol's first rules: no feature holds."
    return Entry(page.protocol, Sort.PROFILE, name, "", "Profiles", page.address, text=text)
