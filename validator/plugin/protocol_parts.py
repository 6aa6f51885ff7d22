# SPDX-License-Identifier: Apache-2.0
"""The optional parts of a `ProtocolDefinition`; each one enables further commands or tests for the protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from validator.core.rules import ChainSettings, RulesEpoch
from validator.core.types import BlockNumber, ChannelId, ParaId
from validator.document import Node

LIMITS = "limits"
"""The table of a chain's limits in `validator.toml`, unless its protocol names another one."""


def check_maxima(what: str, maxima: Mapping[str, int]) -> None:
    """Raise ``ValueError`` for the first greatest value of a limit that is not an integer from 0 on."""
    for name, greatest in maxima.items():
        if type(greatest) is not int or greatest < 0:
            raise ValueError(f"{what}: {name}: expected an integer from 0 on, found {greatest!r}")


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """How `validator.toml` holds a chain's limits: integers that are checked when the file is read, with presets.

    ``key`` is the table's name in ``[chains.<lane>]``. ``maxima`` maps all limits, in the protocol's order, to the greatest value that a
    file may set. ``presets`` are complete configurations by name. The table's key ``preset`` selects one, and single values override it.
    A limit set by neither is 0, or left out if it is ``optional``. Raises ``ValueError`` for a greatest value that is not an integer from 0
    on, then for a preset with an unknown limit, then for one with a value out of range.
    """

    maxima: Mapping[str, int]
    presets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    key: str = LIMITS
    optional: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_maxima(f"limits_table {self.key}", self.maxima)
        for preset, values in self.presets.items():
            for name, value in values.items():
                greatest = self.maxima.get(name)
                if greatest is None:
                    raise ValueError(f"limits_table {self.key}: preset {preset}: no such limit: {name}")
                if type(value) is not int or not 0 <= value <= greatest:
                    raise ValueError(
                        f"limits_table {self.key}: preset {preset}: {name}: expected 0 to {greatest}, found {value!r}"
                    )

    def resolve(self, table: Mapping[str, Any]) -> dict[str, int]:
        """Return the value of every limit for a table that has passed validation."""
        given = {name: value for name, value in table.items() if name != "preset" and value is not None}
        preset = table.get("preset")
        zeros = {name: 0 for name in self.maxima if name not in self.optional}
        return {**zeros, **({} if preset is None else self.presets[preset]), **given}


@dataclass(frozen=True, slots=True)
class RuleProfiles:
    """The rules that a chain can choose by height: features, each off or on, and profiles, which are named sets of them.

    ``features`` maps each feature to a sentence that says what holds while it is on; ``profiles`` are oldest first. ``default`` names the
    profile before the first entry of a chain's list. ``lasting`` features cannot be switched off again. ``with_implied`` adds the features
    that others imply. ``version_of`` returns the version (`RulesEpoch.version`) of a set; ``epoch`` returns the rules of a version from a
    block on, and raises ``ValueError`` for a version that names none. ``features_of`` is the inverse of ``version_of``. ``notifications``
    names the feature that also holds in every block of a chain with ``hrmp_notifications = true``, if there is one.
    """

    features: Mapping[str, str]
    profiles: Mapping[str, frozenset[str]]
    default: str
    lasting: frozenset[str]
    with_implied: Callable[[frozenset[str]], frozenset[str]]
    version_of: Callable[[frozenset[str]], int]
    features_of: Callable[[int], frozenset[str]]
    epoch: Callable[[BlockNumber, int], RulesEpoch]
    notifications: str | None = None


@dataclass(frozen=True, slots=True)
class StateFile:
    """The readable form of a state, for ``chains.<lane>.state``, `validator lanes import` and `validator state show --json`.

    ``read`` returns the state of a document under a chain's configuration. It raises `validator.errors.UserError` through `Node.fail`
    for a document that is malformed, inconsistent or describes an unreachable state. ``write`` returns a document of plain JSON values;
    reading it back gives the same pages. ``counts`` summarizes what was read, by name: ``{"paras": 12}``.
    """

    read: Callable[[Node, ChainSettings], Any]
    write: Callable[[Any], dict[str, Any]]
    counts: Callable[[Any], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class StateSection:
    """A section of `validator state show`, in print order: a title, named facts, a table, a line of text; each is optional.

    Columns named in ``left`` hold text and may wrap; the others hold right-aligned numbers.
    """

    title: str = ""
    facts: Sequence[tuple[str, str]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    left: Collection[str] = ()
    text: str = ""


def section_title(words: str, count: int = 0, shown: int | None = None) -> str:
    """Return a section's title with the number of its entries and, if ``shown`` is smaller, how many of them it shows."""
    if not count:
        return words
    return f"{words} ({count:,})" if shown is None or count <= shown else f"{words} (first {shown} of {count:,})"


@dataclass(frozen=True, slots=True)
class StateView:
    """What `validator state show` displays of a state, as plain data; without it, the command uses the ``view`` of the protocol's traces.

    ``paras`` and ``channels`` return the existing ones, ascending. A ``_document`` function returns JSON values, with its state keys under
    ``state``. ``whole_document`` returns only what a state file has no key for; `StateFile.write` gives its ``state``. The functions for
    one para or channel return None if the state holds nothing about it.
    """

    paras: Callable[[Any], Sequence[ParaId]]
    channels: Callable[[Any], Sequence[ChannelId]]
    whole_document: Callable[[Any], dict[str, Any]]
    para_document: Callable[[Any, ParaId], dict[str, Any] | None]
    channel_document: Callable[[Any, ChannelId], dict[str, Any] | None]
    whole_sections: Callable[[Any], Sequence[StateSection]]
    para_sections: Callable[[Any, ParaId], Sequence[StateSection] | None]
    channel_sections: Callable[[Any, ChannelId], Sequence[StateSection] | None]


@dataclass(frozen=True, slots=True)
class HandlerBench:
    """What `validator.testing.Harness` needs to run a chain whose upward messages go to handlers.

    ``preset`` names the entry of `LimitsTable.presets` for a chain that sets no limits. ``check`` raises `validator.errors.UserError` for a
    configuration under which nothing is dispatched. The other functions take a state. ``paras`` returns the valid paras, ascending.
    ``send`` queues a para's upward message under a profile, as an enacted candidate does, and ``waits`` says whether any message is
    queued. ``account`` has a para's ``free`` and ``reserved`` balance. ``downward`` returns a para's downward messages, oldest first.
    ``channels`` and ``open_requests`` return copies, ``close_requests`` channel ids; each ascending.
    """

    preset: str
    check: Callable[[Any], None]
    paras: Callable[[Any], Sequence[ParaId]]
    send: Callable[[Any, Any, ParaId, bytes], None]
    waits: Callable[[Any], bool]
    account: Callable[[Any, ParaId], Any]
    downward: Callable[[Any, ParaId], list[bytes]]
    channels: Callable[[Any], dict[ChannelId, Any]]
    open_requests: Callable[[Any], dict[ChannelId, Any]]
    close_requests: Callable[[Any], list[ChannelId]]
