# SPDX-License-Identifier: Apache-2.0
"""One kind of record in single-object encoding, for records that are neither inputs nor outputs of lanes."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from fastavro import schemaless_reader

from validator.codec.encode import write
from validator.codec.schemas import HEADER_SIZE, SchemaSet

if TYPE_CHECKING:
    from validator.codec.schemas import Schema


class RecordUnreadable(ValueError):
    """The bytes are no record of the expected kind; the text says why."""


class RecordFormat:
    """Reads every released version of a record, and writes the current one."""

    def __init__(self, schemas: SchemaSet, name: str) -> None:
        self.schema: Schema = schemas[name]
        self._by_header = {schema.header: schema for schema in schemas.every_version(name)}

    def encode(self, datum: dict[str, Any]) -> bytes:
        """Return the record's bytes; ``datum`` is in the form that fastavro takes."""
        return write(self.schema, datum)

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the record as fastavro reads it. Raises `RecordUnreadable`: another kind of record, bytes missing or left over."""
        schema = self._by_header.get(value[:HEADER_SIZE])
        if schema is None:
            raise RecordUnreadable(
                f"expected a record {self.schema.name}, found bytes that start with {value[:10].hex()}"
            )
        stream = BytesIO(value)
        stream.seek(HEADER_SIZE)
        reader = None if schema.canonical == self.schema.canonical else self.schema.parsed
        try:
            datum: Any = schemaless_reader(stream, schema.parsed, reader)
        except Exception as error:  # fastavro raises many kinds on damaged bytes
            raise RecordUnreadable(f"expected a record {self.schema.name}: {type(error).__name__}: {error}") from error
        if stream.tell() != len(value):
            raise RecordUnreadable(f"{self.schema.name}: {len(value) - stream.tell()} bytes left over")
        return datum  # type: ignore[no-any-return]  # a record's schema gives a dict
