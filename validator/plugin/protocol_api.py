# SPDX-License-Identifier: Apache-2.0
"""The public API for protocols, in addition to `validator.plugin.api` and `validator.protocols.kit`.

A protocol is a rule set (`RuleSet`, a table of functions on a state) with its records, encodings and traces, described by a
`ProtocolDefinition`. `validator.protocols.kit` holds what most rule sets share. Within a major version of the API, names are added but
never removed or changed in meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import Any

from validator.codec.record_types import RECORD_TOPICS, RecordType, check_count, check_payload, check_u32, relay_parent
from validator.compare import first_difference
from validator.core.errors import InvariantBroken, LimitError, Report, Violation, refuse
from validator.core.events import EventLog, IngressLog
from validator.core.handlers.state import HandlerStates
from validator.core.hashing import blake2b_256, compact, message_hash, mqc_link
from validator.core.levels import ChannelLevel, LaneLevel, LevelChoice, Levels, ParaLevel
from validator.core.limits import (
    HEADROOM_WATERMARKS_MAX,
    MESSAGES_PER_CANDIDATE_MAX,
    PAYLOAD_BYTES_MAX,
    U32_MAX,
    U64_MAX,
    U128_MAX,
)
from validator.core.outcomes import (
    ChannelEvent,
    ChannelEventKind,
    ChannelHeadroom,
    Dispatch,
    IngressEvent,
    IngressEventKind,
    MessageRange,
    MessageRef,
    ParaHeadroom,
)
from validator.core.root import merkle_root
from validator.core.rules import (
    FIRST_RULES,
    ChainSettings,
    Effects,
    Environment,
    LaneRules,
    RulesEpoch,
    RuleSet,
    check_rules,
    in_force,
)
from validator.core.scale import DecodeError, Encoding, Reader, Writer
from validator.core.state import OrderedSet
from validator.core.types import (
    ZERO_HASH,
    Balance,
    Balances,
    BlockNumber,
    ChannelId,
    DownwardMessage,
    Enactment,
    Hash,
    Para,
    ParaId,
    ParaKind,
    PendingRef,
    SessionChange,
    SessionIndex,
    Weight,
)
from validator.document import Node, read_para
from validator.plugin.api import Manifest, hookimpl

LIMITS = "limits"
"""The table of a chain's limits in `validator.toml`, unless its protocol names another one."""


def installed_protocol(name: str) -> ProtocolDefinition | None:
    """Return the definition of an installed protocol, to make another one of: None if no plugin has its name.

    Raises `validator.errors.UserError` if its plugin does not work.
    """
    from validator.plugin import runtime  # which imports this module

    return runtime.installed_protocol(name)


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


__all__ = [
    "FIRST_RULES",
    "HEADROOM_WATERMARKS_MAX",
    "MESSAGES_PER_CANDIDATE_MAX",
    "PAYLOAD_BYTES_MAX",
    "U32_MAX",
    "U64_MAX",
    "U128_MAX",
    "ZERO_HASH",
    "Balance",
    "Balances",
    "BlockNumber",
    "ChainSettings",
    "ChannelEvent",
    "ChannelEventKind",
    "ChannelHeadroom",
    "ChannelId",
    "ChannelLevel",
    "DecodeError",
    "Dispatch",
    "DownwardMessage",
    "Effects",
    "Enactment",
    "Encoding",
    "Environment",
    "EventLog",
    "HandlerBench",
    "HandlerStates",
    "Hash",
    "IngressEvent",
    "IngressEventKind",
    "IngressLog",
    "InvariantBroken",
    "LaneLevel",
    "LaneRules",
    "LevelChoice",
    "Levels",
    "LimitError",
    "LimitsTable",
    "Manifest",
    "MessageRange",
    "MessageRef",
    "Node",
    "OrderedSet",
    "Para",
    "ParaHeadroom",
    "ParaId",
    "ParaKind",
    "ParaLevel",
    "PendingRef",
    "ProofFormat",
    "ProtocolDefinition",
    "Reader",
    "RecordType",
    "Report",
    "RuleProfiles",
    "RuleSet",
    "RulesEpoch",
    "SessionChange",
    "SessionIndex",
    "StateFile",
    "StateSection",
    "StateView",
    "TraceFormat",
    "Violation",
    "Weight",
    "Writer",
    "blake2b_256",
    "check_count",
    "check_payload",
    "check_u32",
    "compact",
    "first_difference",
    "hookimpl",
    "in_force",
    "installed_protocol",
    "merkle_root",
    "message_hash",
    "mqc_link",
    "read_para",
    "refuse",
    "relay_parent",
    "section_title",
]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """The protocol-specific parts of the conformance format; the functions raise `validator.errors.UserError` through `Node.fail`.

    ``request`` and ``candidate`` read an entry of a step; ``candidate`` also gets the step's block. ``view`` returns the complete state
    under ``state_keys``. ``features`` are the feature names that a scenario may need. ``pending_ends_with_session`` says, if need be by
    configuration, that a session change drops candidates that are not enacted yet. ``scenario_keys`` are further keys of a scenario, which
    ``configuration`` reads as if they stood in its ``config``. ``body`` reads an entry of a step's ``bodies`` as the request that reports
    it; without it, steps have no bodies. ``para_keys`` and ``channel_keys`` are the state keys whose objects are keyed by para (``"2000"``)
    and by channel (``"2000->2004"``): a trace that expects something under any other key is refused. ``suite`` is the folder of trace files
    shipped with the protocol. ``vectors`` recomputes documents of the format ``vector_format``: it takes a group's name and an entry and
    returns the entry's expected result.
    See `docs/trace-format.md`.
    """

    request: Callable[[Node], Any]
    candidate: Callable[[Node, BlockNumber], Any]
    view: Callable[[Any], dict[str, Any]]
    state_keys: tuple[str, ...]
    features: tuple[str, ...] = ()
    pending_ends_with_session: bool | Callable[[Any], bool] = False
    scenario_keys: tuple[str, ...] = ()
    body: Callable[[Node], Any] | None = None
    para_keys: tuple[str, ...] = ()
    channel_keys: tuple[str, ...] = ()
    suite: Traversable | None = None
    vector_format: str | None = None
    vectors: Callable[[str, Node], dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class ProofFormat:
    """The document format of proofs that a protocol makes outside of blocks; both functions take one of ``kinds`` and an object.

    ``prove`` returns ``{"proof", ...}`` together with everything needed to verify the proof, so its result is valid input for ``verify``.
    It raises `validator.errors.UserError` through `Node.fail`. ``verify`` trusts every member except ``proof``. It never raises for the
    content of ``proof``: it returns ``{"ok": True, ...}`` with what is proved, or ``{"ok": False, "error": {"kind", ...}}``. For other
    members it raises as ``prove`` does.
    """

    kinds: tuple[str, ...]
    prove: Callable[[str, Node], dict[str, Any]]
    verify: Callable[[str, Node], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ProtocolDefinition:
    """A rule set that chains can select with ``protocol = "<name>"``.

    ``rule_set`` is the table of its functions on a state, and the optional functions below take that state, too. ``rules`` lists the
    protocol's rules by the block at which they begin: ascending, the first at block 0. ``encoding_version`` is incremented by every change
    to the pages.

    ``configuration`` reads a chain's limits from an object keyed by name, as configuration files and traces write it. ``limits`` are all of
    those names. ``maxima`` maps the limits that a session change may set, in the protocol's order, to their greatest values.
    ``typed_limits`` says that block records hold them in the record ``new_config`` instead of the map ``limits``. ``schemas`` is a folder
    laid out like `avro/` with the schemas of ``records``.

    The rest is optional. ``proofs`` serves `validator prove` and `validator verify`. ``limits_table`` says how `validator.toml` holds the
    limits; without it, ``configuration`` reads them from the table ``limits``. ``state_file`` lets a chain start from an existing state,
    and ``state_view`` is what `validator state show` displays. ``handler_states`` returns the state that upward-message handlers keep;
    ``handler_bench`` supports their authors' tests. ``rules_page`` is the protocol's page of rules, which `validator explain` reads (its
    grammar: docs/write-a-protocol.md). ``rule_profiles`` are rules that a chain can choose by height in its own list, which then takes the
    place of ``rules``. ``invariants`` raises `InvariantBroken` for a state, under a profile, that contradicts itself; `validator audit`
    calls it after each block, and shows once what it may return, a sentence about what it does not compare. ``reconfigure`` gives a state
    in the middle of a chain the named limits of other settings, and their modes (``balances``, ``notifications``); every other limit keeps
    the value in force. It raises ``ValueError`` for a limit that only a chain's beginning may set.

    Raises ``ValueError``, in this order: an ``encoding_version`` that is not a u32; ``rules`` with another number than a u32, whose blocks
    do not ascend from 0, or that list a version twice; a greatest value of a limit that is not an integer from 0 on; a record type whose
    topic does not carry protocols' records, or two of the same name.
    """

    name: str
    encoding_version: int
    rule_set: RuleSet[Any]
    configuration: Callable[[Node], Any]
    limits: tuple[str, ...]
    maxima: Mapping[str, int]
    records: tuple[RecordType, ...]
    schemas: Traversable
    traces: TraceFormat
    rules: tuple[RulesEpoch, ...] = FIRST_RULES
    proofs: ProofFormat | None = None
    limits_table: LimitsTable | None = None
    state_file: StateFile | None = None
    state_view: StateView | None = None
    handler_states: Callable[[Any], HandlerStates] | None = None
    handler_bench: HandlerBench | None = None
    typed_limits: bool = False
    rules_page: Traversable | None = None
    rule_profiles: RuleProfiles | None = None
    invariants: Callable[[Any, Any], str | None] | None = None
    reconfigure: Callable[[Any, ChainSettings, Collection[str]], None] | None = None

    def __post_init__(self) -> None:
        try:
            self._check()
        except ValueError as error:
            raise ValueError(f"protocol {self.name}: {error}") from None

    def _check(self) -> None:
        if type(self.encoding_version) is not int or not 0 <= self.encoding_version <= U32_MAX:
            raise ValueError(
                f"encoding_version: expected a number from 0 to {U32_MAX}, found {self.encoding_version!r}"
            )
        check_rules(self.rules)
        versions = [epoch.version for epoch in self.rules]
        if len(dict.fromkeys(versions)) != len(versions):
            raise ValueError(f"rules: expected each version once, found {versions}")
        check_maxima("maxima", self.maxima)
        names = [record.schema for record in self.records]
        for record in self.records:
            if record.topic not in RECORD_TOPICS:
                raise ValueError(
                    f"record {record.schema}: expected topic {' or '.join(RECORD_TOPICS)}, found {record.topic!r}"
                )
            if names.count(record.schema) > 1:
                raise ValueError(f"record {record.schema}: expected one record type of this name, found several")

    def changes(self, node: Node) -> tuple[tuple[str, int], ...]:
        """Return the limits in an object in the form that `SessionChange` takes. Raises `validator.errors.UserError`."""
        node.refuse_misspelt(tuple(self.maxima))
        return tuple((name, node[name].integer(greatest)) for name, greatest in self.maxima.items() if node.has(name))
