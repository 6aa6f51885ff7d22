# SPDX-License-Identifier: Apache-2.0
"""The second form of a record: Confluent's framing, whose header names a schema by its id in a schema registry.

A value in this form is a zero byte, the schema's id as 4 bytes in big-endian order, and the Avro binary. The plain form has another header
in front of the same Avro binary: marker and fingerprint (`schemas`). So a record changes its form with its first bytes, without being read.
Source: Confluent Platform, "Schema Registry Serializers and Deserializers", section "Wire format".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from fastavro.schema import SchemaParseException, UnknownType, to_parsing_canonical_form
from fastavro.schema import fingerprint as avro_fingerprint

from validator.codec.schemas import HEADER_SIZE, MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC: Final = b"\0"
"""First byte of a record in Confluent's framing."""
ID_HEADER_SIZE: Final = 5
"""Bytes of that byte and the id."""
ID_MAX: Final = 2**32 - 1
SCHEMA_CHARACTERS_MAX: Final = 1024 * 1024
"""Characters of a schema in a registry; a longer one is none of ours."""


def id_header(schema_id: int) -> bytes:
    """Return the 5 bytes that a record starts with in Confluent's framing. Raises ``OverflowError``."""
    return MAGIC + schema_id.to_bytes(4, "big")


def framed_id(value: bytes) -> int | None:
    """Return the id of the schema that a value in Confluent's framing names; None if the value has another form."""
    if len(value) < ID_HEADER_SIZE or not value.startswith(MAGIC):
        return None
    return int.from_bytes(value[len(MAGIC) : ID_HEADER_SIZE], "big")


def described(value: bytes) -> str:
    """Return the form of bytes that are no record of a known schema, in words for an error message."""
    schema_id = framed_id(value)
    if schema_id is not None:
        return f"{len(value)} bytes in Confluent's framing with schema id {schema_id}, unknown here: check [schema_registry]"
    return f"{len(value)} bytes that start with {value[:HEADER_SIZE].hex() or 'nothing'}"


def plain_form(value: bytes, headers: Mapping[bytes, bytes]) -> bytes:
    """Return a value in its plain form; a value with another header than those of ``headers`` is returned as it is.

    ``headers`` has, by the 5 bytes of Confluent's framing, the 10 bytes of the plain form.
    """
    header = headers.get(value[:ID_HEADER_SIZE])
    return value if header is None else header + value[ID_HEADER_SIZE:]


def plain_header(schema: str) -> bytes | None:
    """Return the 10 bytes that records of a registry's schema start with in their plain form; None if it is no Avro schema."""
    if len(schema) > SCHEMA_CHARACTERS_MAX:
        return None
    try:
        canonical = to_parsing_canonical_form(json.loads(schema))
        return MARKER + bytes.fromhex(avro_fingerprint(canonical, "CRC-64-AVRO"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SchemaParseException, UnknownType):
        return None
