# SPDX-License-Identifier: Apache-2.0
"""Everything that a plugin may import from validator, and all that it may rely on.

A plugin is a module (or object) behind an entry point of one of three groups: ``validator.protocols``, ``validator.handlers``,
``validator.transports``. It implements the hooks of its group (`validator.plugin.hookspecs`) with `hookimpl`. Within a major version of the
API names are added, never removed or changed in meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.resources.abc import Traversable
from typing import Any, Final, Protocol, TypeAlias

import pluggy

from validator.codec.record_types import RecordType, check_count, check_payload, check_u32, relay_parent
from validator.core.errors import InvariantBroken, LimitError, Violation
from validator.core.events import EventLog
from validator.core.handlers.context import Context
from validator.core.handlers.errors import ContextError
from validator.core.handlers.handler import KIND, Handler, MessageWeight
from validator.core.handlers.weights import CALL_WEIGHTS, CallWeights
from validator.core.hashing import blake2b_256, compact, message_hash, mqc_link
from validator.core.limits import (
    HEADROOM_WATERMARKS_MAX,
    MESSAGES_PER_CANDIDATE_MAX,
    PAYLOAD_BYTES_MAX,
    U32_MAX,
    U64_MAX,
    U128_MAX,
)
from validator.core.outcomes import ChannelEvent, ChannelEventKind, ChannelHeadroom, Dispatch, MessageRef, ParaHeadroom
from validator.core.paged import (
    Account,
    InclusionCandidateNotPending,
    OrderedSet,
    PagedRules,
    PendingCandidate,
    TimeoutCandidateNotPending,
)
from validator.core.root import merkle_root
from validator.core.rules import Effects, RuleSet
from validator.core.scale import DecodeError, Reader, Upgrade, Writer, upgraded
from validator.core.types import (
    ZERO_HASH,
    Balance,
    Balances,
    BlockNumber,
    ChannelId,
    DownwardMessage,
    Enactment,
    Hash,
    HostConfiguration,
    Para,
    ParaId,
    ParaKind,
    PendingRef,
    SessionChange,
    SessionIndex,
    Weight,
)
from validator.document import Node
from validator.simulate.chain import SimulatedChain
from validator.simulate.draws import Draws, LeastMet
from validator.simulate.modelled import ModelledChain
from validator.simulate.sessions import SessionTraffic
from validator.simulate.settings import SimulatedBlock, SimulationSettings

__all__ = [
    "API_VERSION",
    "CALL_WEIGHTS",
    "HEADROOM_WATERMARKS_MAX",
    "MESSAGES_PER_CANDIDATE_MAX",
    "PAYLOAD_BYTES_MAX",
    "U32_MAX",
    "U64_MAX",
    "U128_MAX",
    "ZERO_HASH",
    "Account",
    "Balance",
    "Balances",
    "BlockNumber",
    "CallWeights",
    "ChainSettings",
    "ChannelEvent",
    "ChannelEventKind",
    "ChannelHeadroom",
    "ChannelId",
    "Context",
    "ContextError",
    "DecodeError",
    "Dispatch",
    "DownwardMessage",
    "Draws",
    "Effects",
    "Enactment",
    "EventLog",
    "Handler",
    "Hash",
    "HostConfiguration",
    "InclusionCandidateNotPending",
    "InvariantBroken",
    "LeastMet",
    "LimitError",
    "Manifest",
    "MessageRef",
    "MessageWeight",
    "ModelledChain",
    "Node",
    "OrderedSet",
    "PagedRules",
    "Para",
    "ParaHeadroom",
    "ParaId",
    "ParaKind",
    "PendingCandidate",
    "PendingRef",
    "ProofFormat",
    "ProtocolDefinition",
    "Reader",
    "RecordType",
    "RuleSet",
    "SessionChange",
    "SessionIndex",
    "SessionTraffic",
    "SimulatedBlock",
    "SimulatedChain",
    "Simulation",
    "SimulationSettings",
    "TimeoutCandidateNotPending",
    "TraceFormat",
    "Transport",
    "TransportContext",
    "Upgrade",
    "Violation",
    "Weight",
    "Writer",
    "blake2b_256",
    "check_count",
    "check_payload",
    "check_u32",
    "compact",
    "hookimpl",
    "merkle_root",
    "message_hash",
    "mqc_link",
    "relay_parent",
    "upgraded",
]

API_VERSION: Final = (1, 0)
"""Major and minor: a plugin runs where the major is the one it was written for and the minor is no smaller."""

VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*([a-z0-9.+-]*)")
"""What a plugin's version looks like: that of its distribution (PEP 440)."""

hookimpl: Final = pluggy.HookimplMarker("validator")
"""Marks a function as the implementation of the hook of the same name."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Who a plugin is.

    ``name`` is that of its entry point, up to an ``@`` (which lets two versions stand side by side), ``version`` what verdicts are
    traced to, ``api_version`` the `API_VERSION` that it was written for, ``config_type`` the frozen dataclass of its configuration: None
    where it has none. Raises ``ValueError`` for a bad name, version, API version or configuration class, in this order.
    """

    name: str
    version: str
    api_version: tuple[int, int]
    config_type: type[Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not KIND.fullmatch(self.name):
            raise ValueError(f"manifest name: expected 1 to 64 of a-z 0-9 . _ -, found {self.name!r}")
        if not isinstance(self.version, str) or not VERSION.fullmatch(self.version):
            raise ValueError(f"manifest version: expected a version such as 1.0.0, found {self.version!r}")
        numbers = self.api_version
        if not (isinstance(numbers, tuple) and len(numbers) == 2 and all(type(each) is int for each in numbers)):
            raise ValueError(f"manifest api_version: expected (major, minor), found {numbers!r}")
        kind = self.config_type
        if kind is not None and not (is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
            raise ValueError(f"manifest config_type: expected a frozen dataclass, found {kind!r}")

    def config_fields(self) -> tuple[str, ...]:
        """Return the names of the configuration's fields."""
        return () if self.config_type is None else tuple(field.name for field in fields(self.config_type))


@dataclass(frozen=True, slots=True)
class ChainSettings:
    """What a protocol is told about a chain: its limits and modes, the paras that are valid from the start, and who takes upward messages.

    ``configuration`` is of the protocol's own class (`ProtocolDefinition.configuration`). ``upward_messages`` is handed through to the rule
    set's dispatch round (`validator.core.router.dispatch.UpwardMessageSink`).
    """

    configuration: Any
    paras: tuple[Para, ...] = ()
    balances: Balances = Balances.LEDGER
    notifications: bool = False
    enactment: Enactment = Enactment.IMMEDIATE
    upward_messages: Any = None


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """How the conformance format writes what is a protocol's own; functions raise `validator.errors.UserError` by `Node.fail`.

    ``request`` and ``candidate`` read an entry of a step (``candidate`` is given the step's block, too), ``view`` returns a state whole,
    by all of ``state_keys``. ``features`` are the names that a scenario may need; ``pending_ends_with_session`` says that a candidate that
    is not enacted by then is dropped at a session change. ``suite`` is a folder of trace files that come with the protocol; ``vectors``
    recomputes a document of the format ``vector_format``: of a group's name and an entry, what the entry's result has to be. Source:
    traces FORMAT.
    """

    request: Callable[[Node], Any]
    candidate: Callable[[Node, BlockNumber], Any]
    view: Callable[[Any], dict[str, Any]]
    state_keys: tuple[str, ...]
    features: tuple[str, ...] = ()
    pending_ends_with_session: bool = False
    suite: Traversable | None = None
    vector_format: str | None = None
    vectors: Callable[[str, Node], dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class ProofFormat:
    """How documents hold what a protocol proves outside of blocks; both functions are given one of ``kinds`` and an object.

    ``prove`` returns ``{"proof", ...}`` with all that the proof is verified under beside it, so that ``verify`` takes what it returns;
    it raises `validator.errors.UserError` by `Node.fail`. ``verify`` trusts everything but the member ``proof``, for which alone it never
    raises, whatever is there: it returns ``{"ok": True, ...}`` with what is proved, or ``{"ok": False, "error": {"kind", ...}}``. For
    the rest it raises as ``prove`` does.
    """

    kinds: tuple[str, ...]
    prove: Callable[[str, Node], dict[str, Any]]
    verify: Callable[[str, Node], dict[str, Any]]


class Simulation(Protocol):
    """A seeded chain with the verdicts that a model of its own, which shares no code with the rules, gives on its traffic."""

    settings: SimulationSettings

    def chain(self) -> dict[str, Any]:
        """Return the chain's configuration: ``lane``, ``protocol``, ``config`` (its limits), and the other keys of ``[chains.<lane>]``."""

    def blocks(self) -> Iterator[SimulatedBlock]:
        """Play the chain; records are as `validator submit` takes them, expected verdicts as the conformance format writes them."""


@dataclass(frozen=True, slots=True)
class ProtocolDefinition:
    """A rule set that chains may choose with ``protocol = "<name>"``.

    ``rules_version`` grows with every change after which the same state and inputs may give another state, ``encoding_version`` with every
    change of the pages. ``genesis`` returns the state of a chain that has seen no message, ``restore`` the one whose `RuleSet` pages these
    are; ``restore`` takes of the settings only the enactment and ``upward_messages``, and raises `DecodeError`. ``configuration`` reads a
    chain's limits from an object of names, as configuration files and traces write them, ``limits`` are all of those names; ``maxima`` are
    the names, in the protocol's order, and the greatest values of those that a session change may set. ``schemas`` is a folder laid out as
    `avro/` with those of ``records``. ``simulation`` makes the traffic of `validator simulate` and `validator demo`, where there is any;
    ``proofs`` are those of `validator prove` and `validator verify`. ``rules_page`` is the protocol's page of rules, which
    `validator explain` reads (its grammar: `validator.plugin.rule_pages`).
    """

    name: str
    rules_version: int
    encoding_version: int
    genesis: Callable[[ChainSettings], RuleSet]
    restore: Callable[[list[bytes], ChainSettings], RuleSet]
    configuration: Callable[[Node], Any]
    limits: tuple[str, ...]
    maxima: Mapping[str, int]
    records: tuple[RecordType, ...]
    schemas: Traversable
    traces: TraceFormat
    simulation: Callable[[SimulationSettings], Simulation] | None = None
    proofs: ProofFormat | None = None
    rules_page: Traversable | None = None

    def changes(self, node: Node) -> tuple[tuple[str, int], ...]:
        """Return the limits that an object names, as `RuleSet.change_session` gets them. Raises `validator.errors.UserError`."""
        node.refuse_misspelt(tuple(self.maxima))
        return tuple((name, node[name].integer(greatest)) for name, greatest in self.maxima.items() if node.has(name))


Record: TypeAlias = tuple[str, bytes, bytes]
"""Topic without its prefix, key and value."""


class TransportContext(Protocol):
    """What a transport works with, in a process of its own.

    ``config`` is its configuration. Input records go to Kafka, output records come from it; both in the encodings of `avro/`.
    """

    config: Any

    def submit(self, topic: str, key: bytes, value: bytes) -> None:
        """Write a record to an input topic, by its name without the prefix; returns once Kafka has it. Raises `ValueError`."""

    def receive(self, timeout_s: float) -> Record | None:
        """Return the next record of an output topic, committed ones only, or None where none comes in time."""

    def acknowledge(self) -> None:
        """Remember that everything received so far has been delivered: it does not come again after a restart."""

    @property
    def stopping(self) -> bool:
        """Whether the transport is to end."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A way for records to come in and go out besides plain Kafka.

    ``run`` works until `TransportContext.stopping`; ``topics`` are the output topics that it wants to receive, without prefix.
    """

    name: str
    run: Callable[[TransportContext], None]
    topics: tuple[str, ...] = ()
