# SPDX-License-Identifier: Apache-2.0
"""Reads a chain's list of rules by height, as configuration files and traces write it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

from validator.document import Node
from validator.errors import UserError
from validator.plugin.protocol_api import RuleProfiles
from validator.plugin.runtime import RulesUse

KEYS = ("from_block", "profile", "features")


def read_rules(profiles: RuleProfiles, entries: Node) -> tuple[RulesUse, ...]:
    """Return the rules by height that a list of ``{from_block, profile}`` or ``{from_block, features}`` describes.

    Before the first entry the default profile holds. Raises `UserError` for the first error, entry by entry: a misspelt key, a block that
    is none or does not ascend, both or neither of profile and features, an unknown one, and a lasting feature that is taken away.
    """
    uses = [RulesUse(0, profiles.version_of(profiles.profiles[profiles.default]))]
    before: frozenset[str] = profiles.profiles[profiles.default]
    last_block = -1
    for entry in entries.items():
        entry.refuse_misspelt(KEYS)
        from_block = entry["from_block"].integer()
        if from_block <= last_block:
            raise entry["from_block"].fail(f"a block after {last_block}, where the entry before begins")
        features = _features(profiles, entry)
        lost = sorted((profiles.lasting & before) - features)
        if lost:
            raise UserError(
                f"{entry.path}: {lost[0]} cannot be taken away again: expected a profile or features with it"
            )
        if from_block == 0:
            uses.clear()
        uses.append(RulesUse(from_block, profiles.version_of(features)))
        before, last_block = features, from_block
    return tuple(uses)


def rules_with(profiles: RuleProfiles, features: Iterable[str]) -> tuple[RulesUse, ...]:
    """Return the rules of a chain that has these features, and those that they imply, from block 0 on."""
    return (RulesUse(0, profiles.version_of(profiles.with_implied(frozenset(features)))),)


NO_PROFILE: Final = "no named profile"


def profile_of(profiles: RuleProfiles, features: frozenset[str]) -> str:
    """Return the name of the profile that has exactly these features."""
    return next((name for name, held in profiles.profiles.items() if held == features), NO_PROFILE)


def _features(profiles: RuleProfiles, entry: Node) -> frozenset[str]:
    named, listed = entry.has("profile"), entry.has("features")
    if named == listed:
        raise UserError(f"{entry.path}: expected either profile or features, found {'both' if named else 'neither'}")
    if named:
        return profiles.profiles[_one_of(entry["profile"], profiles.profiles)]
    return profiles.with_implied(frozenset(_one_of(each, profiles.features) for each in entry["features"].items()))


def _one_of(node: Node, known: Collection[str]) -> str:
    name = node.text()
    if name not in known:
        hint = suggestion(name, known) or f"; known are {', '.join(known)}"
        raise UserError(f"{node.path}: unknown {name!r}{hint}")
    return name


def suggestion(name: str, known: Collection[str]) -> str:
    """Return what an error adds for a name that is none of those known: the likeliest one as a question, or nothing."""
    if not name:
        return ""
    close = [each for each in known if each.startswith(name)] or get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
