# SPDX-License-Identifier: Apache-2.0
"""The optional parts of a `ProtocolDefinition`: what more of the product works with a protocol that has them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from validator.core.rules import ChainSettings, RuleSet
from validator.core.types import ChannelId, ParaId
from validator.document import Node

LIMITS = "limits"
"""The table of a chain's limits in `validator.toml`, where its protocol gives it no other name."""


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """How `validator.toml` holds a chain's limits, all of which are integers: checked when the file is read, and with presets.

    ``key`` is the table's name in ``[chains.<lane>]``, none of the keys that every chain has but ``limits``. ``maxima`` are all limits, in
    the protocol's order, with the greatest value that a file may give. ``presets`` are limits by name; the table's own key ``preset``
    chooses one, and single values go over it. What neither gives is 0.
    """

    maxima: Mapping[str, int]
    presets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    key: str = LIMITS

    def resolve(self, table: Mapping[str, Any]) -> dict[str, int]:
        """Return every limit that a table of the right shape means."""
        given = {name: value for name, value in table.items() if name != "preset" and value is not None}
        preset = table.get("preset")
        return {**dict.fromkeys(self.maxima, 0), **({} if preset is None else self.presets[preset]), **given}


@dataclass(frozen=True, slots=True)
class StateFile:
    """How a person writes a state down: for ``chains.<lane>.state``, `validator lanes import` and `validator state show --json`.

    ``read`` returns the rules of a document under a chain's configuration; it raises `validator.errors.UserError` by `Node.fail` for what
    is malformed, contradicts itself or cannot be reached. ``write`` returns a document of plain JSON values; ``read`` of it gives the same
    pages. ``counts`` are numbers that tell a person what was read, by name: ``{"paras": 12}``.
    """

    read: Callable[[Node, ChainSettings], RuleSet[Any]]
    write: Callable[[Any], dict[str, Any]]
    counts: Callable[[Any], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class StateSection:
    """A part of what `validator state show` prints, top down: a title, facts by name, a table, a line of text; each may be missing.

    Columns that are named in ``left`` hold text, which may wrap; the others hold numbers, to the right.
    """

    title: str = ""
    facts: Sequence[tuple[str, str]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    left: Collection[str] = ()
    text: str = ""


def section_title(words: str, count: int = 0, shown: int | None = None) -> str:
    """Return a section's title with the number of its entries, and how many of them it shows at most (None: all)."""
    if not count:
        return words
    return f"{words} ({count:,})" if shown is None or count <= shown else f"{words} (first {shown} of {count:,})"


@dataclass(frozen=True, slots=True)
class StateView:
    """What `validator state show` shows of a state, as plain data; a protocol without it is shown by its traces' ``view``.

    ``paras`` and ``channels`` are those that there are, ascending. A ``_document`` holds JSON values, with the state keys that it is about
    under ``state``, beside which ``whole_document`` has what a state file has no key for (`StateFile.write` gives its ``state``). The
    functions about a para or a channel return None where nothing of the state is about it.
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

    ``preset`` is the one of `LimitsTable.presets` under which a chain runs that names no limits. ``check`` raises
    `validator.errors.UserError` for a configuration that dispatches nothing. ``paras`` are the valid ones, ascending. ``send`` puts an
    upward message of a para into its queue as an enacted candidate does, ``waits`` says whether any message is queued. ``account`` has a
    para's ``free`` and ``reserved`` balance. ``downward`` are a para's downward messages, oldest first. ``channels`` and
    ``open_requests`` are copies, ``close_requests`` names; each ascending.
    """

    preset: str
    check: Callable[[Any], None]
    paras: Callable[[Any], Sequence[ParaId]]
    send: Callable[[Any, ParaId, bytes], None]
    waits: Callable[[Any], bool]
    account: Callable[[Any, ParaId], Any]
    downward: Callable[[Any, ParaId], list[bytes]]
    channels: Callable[[Any], dict[ChannelId, Any]]
    open_requests: Callable[[Any], dict[ChannelId, Any]]
    close_requests: Callable[[Any], list[ChannelId]]
