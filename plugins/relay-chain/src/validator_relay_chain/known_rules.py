# SPDX-License-Identifier: Apache-2.0
"""The rules of a lane as far as its configuration has them, in ``rules.json`` of the lane's folder, and those that it lacks.

A lane judges each block by the rules of its time, so no block may reach it before its job has the rules of that block. The transport stops
before the first block under rules that this file does not name, and writes here what is wanted. `validator follow` adds it to the
configuration, and continues once the job has started with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from validator_relay_chain.errors import FollowError, RulesWanted
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.rules import features_of, guess_of

FILE: Final = "rules.json"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RulesEntry:
    """Rules from a block on, as features."""

    from_block: int
    features: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as `validator.toml` lists it."""
        return {"from_block": self.from_block, "features": list(self.features)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> RulesEntry:
        """Return the entry again. Raises ``LookupError``, ``TypeError``, ``ValueError``."""
        return cls(int(plain["from_block"]), tuple(str(each) for each in plain["features"]))


@dataclass(frozen=True, slots=True)
class KnownRules:
    """The entries that the configuration has, ascending, and the one that it lacks."""

    entries: tuple[RulesEntry, ...] = ()
    wanted: RulesEntry | None = None

    def at(self, block: int) -> tuple[str, ...] | None:
        """Return the features that hold in a block, or None if no entry says it."""
        return next((each.features for each in reversed(self.entries) if each.from_block <= block), None)

    def with_wanted(self) -> KnownRules:
        """Return these rules once the configuration has what was wanted."""
        return self if self.wanted is None else KnownRules((*self.entries, self.wanted))


def read_rules(folder: Path) -> KnownRules:
    """Return the known rules of a lane's folder; none if there is no file. Raises `FollowError` for another file."""
    path = folder / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']!r}")
        wanted = document["wanted"]
        return KnownRules(
            tuple(RulesEntry.of(each) for each in document["entries"]),
            None if wanted is None else RulesEntry.of(wanted),
        )
    except FileNotFoundError:
        return KnownRules()
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FollowError(f"{path}: expected rules by height, version {VERSION}, found {error}") from error


def write_rules(folder: Path, known: KnownRules) -> None:
    """Write the known rules of a lane, whole or not at all. Raises `FollowError`."""
    path = folder / FILE
    new = path.with_name(f"{FILE}.new")
    wanted = None if known.wanted is None else known.wanted.to_json()
    document = {"version": VERSION, "entries": [each.to_json() for each in known.entries], "wanted": wanted}
    try:
        new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise FollowError(f"{path}: cannot be written: {error.strerror}") from error


def entries_of(listed: Iterable[Mapping[str, Any]]) -> KnownRules:
    """Return the rules of entries as the configuration lists them."""
    return KnownRules(tuple(RulesEntry.of(each) for each in listed))


class RulesGuard:
    """Lets no block pass whose rules the lane's configuration lacks."""

    def __init__(self, lane: str, folder: Path) -> None:
        self._lane, self._folder = lane, folder

    def features_at(self, block: int) -> tuple[str, ...]:
        """Return the features that the configuration has for a block; none if no entry says it."""
        return read_rules(self._folder).at(block) or ()

    def check(self, block: int, runtime: Runtime) -> None:
        """Raise `RulesWanted`, once it is written what is wanted, unless the configuration has the rules of a block under a new runtime."""
        known = read_rules(self._folder)
        before = known.at(block)
        features = tuple(features_of(runtime, before or ()))
        if features == before:
            return
        write_rules(self._folder, replace(known, wanted=RulesEntry(block, features)))
        guess = guess_of(runtime)
        raise RulesWanted(
            f"lane {self._lane}: block {block} is the first one under runtime {runtime}, whose rules the configuration lacks: "
            f"{changes(before or (), features)}{'' if guess is None else f' ({guess})'}: `validator follow --lane {self._lane}` adds them; "
            "then start the job again"
        )


def changes(before: Sequence[str], after: Sequence[str]) -> str:
    """Return which features come and go, in words."""
    gone = [f"- {each}" for each in before if each not in after]
    return ", ".join([*(f"+ {each}" for each in after if each not in before), *gone]) or "the same features"
