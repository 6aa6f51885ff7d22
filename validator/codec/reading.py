# SPDX-License-Identifier: Apache-2.0
"""Reads records that were written with any version of a schema as records of the current one."""

from __future__ import annotations

from functools import cache, lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError

from validator.codec.strict import NotCanonical, StrictReader, strict_reader

if TYPE_CHECKING:
    from validator.codec.schemas import Schema

READERS_MAX: Final = 1_024
"""Readers that a process keeps: codecs of the same schemas share them."""


@lru_cache(maxsize=READERS_MAX)
def record_reader(schema: Schema, current: Schema, *, name_records: bool = False) -> StrictReader:
    """Return what reads the bytes of a record from a position on, up to the last one.

    ``schema`` is the writer's. With ``name_records``, a record inside a union is the pair of its name and itself. The reader raises
    `NotCanonical`. It is compiled when it is first used, since a codec has many that a process never needs.
    """

    @cache
    def compiled() -> StrictReader:
        return strict_reader(schema.parsed, name_records=name_records)

    def read(data: bytes, at: int) -> Any:
        return compiled()(data, at)

    def read_resolved(data: bytes, at: int) -> Any:
        compiled()(data, at)
        stream = BytesIO(data)
        stream.seek(at)
        try:
            return schemaless_reader(stream, schema.parsed, current.parsed, name_records)
        except SchemaResolutionError as error:
            raise NotCanonical(at, f"a value of the current {current.name}", str(error)) from error

    return read if schema.canonical == current.canonical else read_resolved
