# SPDX-License-Identifier: Apache-2.0
"""How the records of some protocols are read and written: a value, built once and passed to whoever decodes or encodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from validator.codec.encode import write
from validator.codec.framing import plain_form
from validator.codec.record_types import RecordType, Shape, block_shape, shape_downward
from validator.codec.schemas import HEADER_SIZE, SchemaSet, schemas, schemas_of
from validator.codec.strict import NotCanonical, record_reader
from validator.core.inputs import RecordKind
from validator.errors import UserError
from validator.topics import INPUT_TOPICS, TOPIC_OF_KIND

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from validator.codec.schemas import Schema, SchemaSet
    from validator.codec.strict import StrictReader


class ProtocolRecords(Protocol):
    """What a codec needs to know about a protocol (`validator.plugin.api.ProtocolDefinition`)."""

    @property
    def name(self) -> str:
        """Name by which chains select it."""

    @property
    def records(self) -> tuple[RecordType, ...]:
        """Its own types of input records."""

    @property
    def schemas(self) -> Traversable:
        """Folder of their schemas, laid out like `avro/`."""


class RecordChecks(NamedTuple):
    """What the records of a lane must satisfy.

    ``protocol`` is the lane's protocol. ``maxima`` are the limits that a session change may set, each with its maximum. ``typed_limits``
    says which field holds them: the record ``new_config`` if true, else the map ``limits``.
    """

    protocol: str
    maxima: Mapping[str, int]
    typed_limits: bool = False


class Reading(NamedTuple):
    """How to read the input records of one fingerprint.

    ``writer`` is the schema of the fingerprint, ``current`` the one as whose record it is read. ``protocols`` is empty if every protocol
    has this record. ``read`` returns requests with the name of the call.
    """

    kind: RecordKind
    name: str
    writer: str
    current: str
    shape: Shape
    protocols: tuple[str, ...]
    read: StrictReader


@dataclass(frozen=True, slots=True)
class Codec:
    """The records of some protocols, those that all protocols share, and the outputs.

    ``schemas`` has the current schemas by name, ``by_header`` all versions by the first ten bytes of their records. ``readings`` has the
    input records by these bytes. ``inputs`` has the names of input records by kind and protocol; the protocol is None if every protocol has
    the record. ``ids`` has what a schema registry knows: by the 5 bytes that a record starts with in Confluent's framing, the 10 bytes of
    its plain form.
    """

    schemas: Mapping[str, Schema]
    by_header: Mapping[bytes, Schema]
    readings: Mapping[bytes, Reading]
    inputs: Mapping[tuple[RecordKind, str | None], str]
    ids: Mapping[bytes, bytes] = field(default_factory=dict)

    @staticmethod
    def of(protocols: Iterable[ProtocolRecords]) -> Codec:
        """Return the codec of some protocols.

        Raises `UserError` if a schema is wrong or names a topic other than its record type's, and if two protocols read the same bytes
        differently.
        """
        shared = schemas()
        builder = _Builder(shared.current)
        builder.by_header = {schema.header: schema for versions in shared.versions.values() for schema in versions}
        for kind, make_shape in _SHARED.items():
            (schema,) = (each for each in shared.of_topic(TOPIC_OF_KIND[kind]) if each.name != ORDER_SCHEMA)
            builder.add(kind, schema.name, make_shape(schema), None, shared)
        # the package's own protocols come first, so that errors list records in the same order whatever else is installed
        for protocol in sorted(protocols, key=lambda each: (schemas_of(each.schemas) is not shared, each.name)):
            own = schemas_of(protocol.schemas)
            for record in protocol.records:
                builder.add(_kind(record, protocol, own), record.schema, record.shape, protocol.name, own)
        return builder.codec()

    def knowing(self, ids: Mapping[bytes, bytes]) -> Codec:
        """Return a codec that also reads Confluent's framing with these ids."""
        return replace(self, ids=MappingProxyType(dict(ids)))

    def plain(self, value: bytes) -> bytes:
        """Return a value in its plain form; as it is if it has another form than those that the codec knows."""
        return plain_form(value, self.ids)

    def topic_of(self, schema: Schema) -> str | None:
        """Return the topic that carries the records of a schema; None if it is part of other records."""
        kinds = (TOPIC_OF_KIND[kind] for (kind, _), name in self.inputs.items() if name == schema.name)
        return next(kinds, schema.topic)

    def input_schema(self, kind: RecordKind, protocol: str) -> Schema:
        """Return the schema of a protocol's records of a kind. Raises ``KeyError`` if the codec is not for the protocol."""
        return self.schemas[self.inputs.get((kind, None)) or self.inputs[kind, protocol]]

    def names(self, topic: str) -> tuple[str, ...]:
        """Return the names of the records that a topic carries."""
        kind = INPUT_TOPICS.get(topic)
        if kind is None:
            return tuple(schema.name for schema in self.schemas.values() if schema.topic == topic)
        return tuple(name for (of, _), name in self.inputs.items() if of == kind)


ORDER_SCHEMA: Final = "validator.LaneOrder"
"""The record among the blocks that is no input (`codec.orders`)."""

_SHARED: Final[dict[RecordKind, Callable[[Schema], Shape]]] = {
    RecordKind.BLOCK: block_shape,
    RecordKind.DOWNWARD: lambda _: shape_downward,
}
"""By kind, builds the shape of a record that every protocol has from its current schema."""


class _Builder:
    """A codec under construction."""

    def __init__(self, current: dict[str, Schema]) -> None:
        self.schemas = current
        self.by_header: dict[bytes, Schema] = {}
        self.readings: dict[bytes, Reading] = {}
        self.inputs: dict[tuple[RecordKind, str | None], str] = {}

    def codec(self) -> Codec:
        return Codec(
            MappingProxyType(self.schemas),
            MappingProxyType(self.by_header),
            MappingProxyType(self.readings),
            MappingProxyType(self.inputs),
        )

    def add(self, kind: RecordKind, name: str, shape: Shape, protocol: str | None, known: SchemaSet) -> None:
        current = known[name]
        other = self.schemas.get(name)
        taken = name in self.inputs.values() or (other is not None and other.topic not in INPUT_TOPICS)
        if taken and other is not None and other.canonical != current.canonical:
            raise UserError(f"protocol {protocol}: its schema {name} differs from another schema of this name")
        self.inputs[kind, protocol] = name
        self.schemas[name] = current
        for schema in known.versions[name]:
            protocols = () if protocol is None else (protocol,)
            read = record_reader(schema, current, name_records=kind == RecordKind.REQUEST)
            made = Reading(kind, name, schema.canonical, current.canonical, shape, protocols, read)
            there = self.readings.get(schema.header)
            if there is not None:
                if there[:5] != made[:5]:
                    raise UserError(f"protocols {' and '.join((*there.protocols, *protocols))} read {name} differently")
                made = made._replace(protocols=(*there.protocols, *protocols))
            self.readings[schema.header] = made
            self.by_header[schema.header] = schema


def _kind(record: RecordType, protocol: ProtocolRecords, known: SchemaSet) -> RecordKind:
    if record.schema not in known.current:
        raise UserError(f"protocol {protocol.name}: its schema folder has no schema {record.schema}")
    named = known[record.schema].topic
    if named not in (None, record.topic):
        raise UserError(
            f"protocol {protocol.name}: schema {record.schema} names topic {named}, expected {record.topic}"
        )
    return INPUT_TOPICS[record.topic]


@cache
def shared_codec() -> Codec:
    """Return the codec without protocols: for outputs, blocks and downward messages, which all protocols share."""
    return Codec.of(())


class RecordUnreadable(ValueError):
    """The bytes are no record of the expected kind; the text says why."""


class RecordFormat:
    """Reads every version of a record, and writes the current one."""

    def __init__(self, schemas: SchemaSet, name: str) -> None:
        self.schemas = schemas
        self.schema: Schema = schemas[name]
        self._readers = {each.header: record_reader(each, self.schema) for each in schemas.versions[name]}

    def encode(self, datum: dict[str, Any]) -> bytes:
        """Return the record's bytes; ``datum`` is in the form that fastavro takes."""
        return write(self.schema, datum)

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the record as fastavro returns it. Raises `RecordUnreadable`: another kind of record, bytes that no writer writes."""
        read = self._readers.get(value[:HEADER_SIZE])
        if read is None:
            raise RecordUnreadable(
                f"expected a record {self.schema.name}, found bytes that start with {value[:10].hex()}"
            )
        try:
            datum: dict[str, Any] = read(value, HEADER_SIZE)
        except NotCanonical as error:
            raise RecordUnreadable(error.within(self.schema.name)) from error
        return datum
