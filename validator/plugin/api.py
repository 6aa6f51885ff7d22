# SPDX-License-Identifier: Apache-2.0
"""The public API for handlers and transports: they import nothing else from validator.

A plugin of one of these kinds is a module (or object) behind an entry point of the group ``validator.protocols``, ``validator.handlers`` or
``validator.transports``. It implements the hooks of its group (`validator.plugin.hookspecs`) with `hookimpl`. Protocols also import
`validator.plugin.protocol_api` and `validator.protocols.kit`. Within a major version of the API, names are added but never removed or
changed in meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import pluggy

from validator.core.errors import Violation
from validator.core.handlers.context import Context
from validator.core.handlers.errors import ContextError
from validator.core.handlers.handler import KIND, Handler, MessageWeight
from validator.core.handlers.weights import CALL_WEIGHTS, CallWeights
from validator.core.scale import DecodeError, Reader, Writer
from validator.core.types import Balance, BlockNumber, ParaId, SessionIndex, Weight
from validator.errors import LeaseLost
from validator.metrics.own import Measure, Measures, PluginMetric
from validator.record_filter import RecordFilter

if TYPE_CHECKING:
    from validator.plugin.job_api import OwnTopic

__all__ = [
    "API_VERSION",
    "CALL_WEIGHTS",
    "Balance",
    "BlockNumber",
    "CallWeights",
    "Context",
    "ContextError",
    "DecodeError",
    "Handler",
    "LeaseLost",
    "Manifest",
    "Measure",
    "Measures",
    "MessageWeight",
    "OutputReader",
    "OutputRecord",
    "ParaId",
    "PluginMetric",
    "Reader",
    "RecordFilter",
    "SessionIndex",
    "Transport",
    "TransportContext",
    "Violation",
    "Weight",
    "Writer",
    "hookimpl",
]

API_VERSION: Final = (2, 0)
"""Major and minor. A plugin runs if its major version equals this one and its minor version is not greater."""

LANE_API_VERSION: Final = (1, 0)
"""The last version after which a handler or a protocol may give other verdicts. Runtime digests cover this one."""

VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*([a-z0-9.+-]*)")
"""The form of a plugin's version, which is the version of its distribution (PEP 440)."""

hookimpl: Final = pluggy.HookimplMarker("validator")
"""Marks a function as the implementation of the hook with the same name."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The identity of a plugin.

    ``name`` is the name of its entry point up to an ``@``; text after the ``@`` allows two versions side by side. Verdicts can be traced
    to ``version``. ``api_version`` is the `API_VERSION` that the plugin was written for. ``config_type`` is the frozen dataclass of its
    configuration, or None. Raises ``ValueError`` for a bad name, version, API version or configuration class, in this order.
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


Record: TypeAlias = tuple[str, bytes, bytes]
"""Topic without its prefix, key and value."""


class OutputRecord(NamedTuple):
    """A committed record of an output topic, with its place. Since API 1.1."""

    topic: str
    """The topic without its prefix."""
    partition: int
    offset: int
    key: bytes
    value: bytes


class OutputReader(Protocol):
    """Reads the committed records of some output topics from chosen positions, independently of `TransportContext.receive`. Since API 1.1.

    It begins at the first record that retention has kept. Broker restarts do not disturb it. Different threads may use different readers,
    one thread at a time each. Methods raise ``ValueError`` for a wrong argument, or if the reader is closed, and `LeaseLost`.
    """

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Continue from the given offsets, by topic and partition; partitions that are not named continue from their first record.

        An offset is the one of the next record. If retention has removed that record, its partition continues from the first record that
        is left, which `positions` shows. Raises ``ValueError`` for a partition that is not read, and for an offset beyond the end.
        """

    def receive(self, timeout_s: float) -> OutputRecord | None:
        """Return the next committed record, or None if none arrives in time. Within a partition, records come in the order of offsets."""

    def positions(self) -> dict[tuple[str, int], int]:
        """Return each partition's next offset. It equals that of `ends` once every record has been received, in half a second at most."""

    def ends(self, *, committed: bool = True) -> dict[tuple[str, int], int]:
        """Ask Kafka for the offset after each partition's last committed record, which is where an open transaction begins.

        With ``committed=False`` it is the offset after the last record of all. Whatever a transaction has written, one of whose records has
        been received, is before these offsets, in every partition: once `positions` has reached them, all of it has been received.
        ``committed`` since API 1.5.
        """

    def close(self) -> None:
        """Close the connections. Closing twice has no effect; readers that are open when the transport ends are closed."""


class TransportContext(Protocol):
    """A transport's connection to Kafka, in the transport's own process.

    ``config`` is the transport's configuration. Input records go to Kafka and output records come from it, in the encodings of `avro/`;
    `encode` and `decode` convert them from and to their JSON form, in which people write and read them (docs/sending.md).

    Of all processes that run a transport of one name, one is active and has a context. When it is not active any more, `stopping` is true
    and every method that reaches Kafka raises `LeaseLost`: another process may deliver the same records by then.
    """

    config: Any

    def encode(self, topic: str, record: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return key and value, for `submit` and `enqueue`, of an input record given in JSON form.

        The record belongs to the protocol that the configuration gives its lane, or to a job of the transport. Raises ``ValueError`` that
        says what was expected and found: a topic that is not an input, a record without a lane, then its first wrong field.
        """

    def decode(self, topic: str, value: bytes) -> dict[str, Any]:
        """Return a record of an input or output topic in JSON, as `validator watch --json` prints it: hex begins with ``0x``.

        Raises ``ValueError`` for an unknown topic, then for a wrong value.
        """

    def submit(self, topic: str, key: bytes, value: bytes) -> None:
        """Write a record to an input topic, named without its prefix. Returns once Kafka has the record.

        Raises ``ValueError``: a topic that is not an input, a key or value that is not bytes, a long value; for an input of a job of the
        transport then a value that is no record of the topic, and another key than the record's. Then `LeaseLost`, and
        `validator.errors.UserError` if Kafka does not take the record within a minute: submit it again. Kafka may have it already, and a
        lane recognises the same bytes.
        """

    def enqueue(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        done: Callable[[str | None], None],
        headers: Mapping[str, bytes] = {},
    ) -> bool:
        """Write a record to an input topic in the background; any thread may call this. Since API 1.1.

        Returns False, without calling ``done``, if too many records or bytes wait (``validator/plugin/limits.py``). Otherwise ``done`` is
        called exactly once, from another thread: with None when all in-sync replicas have the record, else with a reason. The reason is
        that Kafka refuses the record, or that the transport ended before Kafka had confirmed it. While Kafka is down records wait, and
        none is written twice. Records of one key keep their order. ``done`` should return soon and must not raise: an exception of it is
        raised by the context's next call. Raises ``ValueError`` as `submit` does, then for a long key, ``done`` and ``headers``.
        """

    def cursor(self, name: str) -> bytes | None:
        """Return the cursor that this transport committed last under a name, or None. Since API 1.3.

        Raises ``ValueError`` if the transport has no cursors.
        """

    def commit(self, records: Iterable[Record], cursors: Mapping[str, bytes]) -> None:
        """Write records to input topics and set cursors, all of it or nothing. Since API 1.3.

        A transport that reads from a source with positions makes the position a cursor. Whenever its process is killed, the next one
        continues from `cursor`, and Kafka holds each record once. Returns once Kafka has committed; while Kafka is down it waits for a
        minute. Any thread may call it, one commit at a time takes place. Raises ``ValueError`` if the transport has no cursors; for each
        record as `submit` does; for too many records or bytes; for cursors that are none, too many, badly named (1 to 64 of a-z 0-9 . _ -)
        or too long; then `LeaseLost`.
        """

    def receive(self, timeout_s: float) -> Record | None:
        """Return the next committed record of the output topics, or None if none arrives in time."""

    def acknowledge(self) -> None:
        """Commit everything received so far as delivered: it is not received again after a restart."""

    def reader(self, topics: Iterable[str]) -> OutputReader:
        """Return a reader of output topics, named without their prefix: of any, not only the transport's. Since API 1.1.

        Raises ``ValueError`` for no topic, a topic that is not an output, and for more open readers than ``READERS_MAX`` of
        ``validator/plugin/limits.py``.
        """

    def measure(self, measures: Measures) -> None:
        """Name the function that returns the values of the transport's metrics (`Transport.metrics`). Since API 1.4.

        Another thread calls it every ten seconds, and for each scrape of the transport's own endpoint; never, if nobody measures. It should
        return soon. Whatever it raises, or a value of a metric that is not declared, is said once, and ends it.
        """

    @property
    def stopping(self) -> bool:
        """Whether the transport should stop."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A route into and out of the system besides plain Kafka.

    ``run`` works until `TransportContext.stopping`. ``topics`` are the output topics to receive, without their prefix. ``jobs`` names
    installed jobs (`validator.plugin.job_api`): what they read of their topics counts as input, and all of their topics as output. Since
    API 1.2. ``lanes`` are chains that the transport is for: one that is not configured is refused. ``cursors`` says whether it calls
    `TransportContext.commit`, for which the topic `cursors` is created. ``own`` are topics that exist for transports of this plugin
    (`validator.plugin.job_api.OwnTopic`): they are created when it starts, it writes and reads them. All three since API 1.3.
    ``metrics`` are what it measures (`TransportContext.measure`). Since API 1.4. ``feeds`` are lanes whose blocks it sends, each with the
    seconds after which the lane is unhealthy if no new block has arrived, for whatever reason. Since API 1.5.
    """

    name: str
    run: Callable[[TransportContext], None]
    topics: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    cursors: bool = False
    own: tuple[OwnTopic, ...] = ()
    metrics: tuple[PluginMetric, ...] = ()
    feeds: Mapping[str, float] = field(default_factory=dict)
