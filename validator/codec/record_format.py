# SPDX-License-Identifier: Apache-2.0
"""One kind of record in single-object encoding, for records that are neither inputs nor outputs of lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validator.codec.encode import write
from validator.codec.reading import record_reader
from validator.codec.schemas import HEADER_SIZE, SchemaSet
from validator.codec.strict import NotCanonical

if TYPE_CHECKING:
    from validator.codec.schemas import Schema


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
