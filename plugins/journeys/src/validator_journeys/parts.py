# SPDX-License-Identifier: Apache-2.0
"""The Avro form of a record of `journeys` in parts: the fields before the payload's summary, the summary, and the fields behind it.

A record's bytes are its fields' bytes one after the other. So the summary is encoded once, on the core that reads the payload, and every
record of its message has the same bytes there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple

from fastavro import parse_schema, schemaless_writer

from validator.plugin.job_api import SchemaSet

SCHEMA: Final = "validator.journeys.Journey"

_SPLIT_AT: Final = "payload"
_NONE, _SOME = b"\0", b"\2"
"""The branches of the union of null and a summary, as Avro writes them."""


class _Parts(NamedTuple):
    header: bytes
    head: Any
    summary: Any
    tail: Any


@cache
def own_schemas() -> SchemaSet:
    """Return the plugin's schemas."""
    return SchemaSet.read(files("validator_journeys") / "schemas")


@cache
def _parts() -> _Parts:
    schema = own_schemas()[SCHEMA]
    fields: list[dict[str, Any]] = schema.parsed["fields"]
    at = [field["name"] for field in fields].index(_SPLIT_AT)
    named: dict[str, Any] = {}

    def parsed(name: str, part: list[dict[str, Any]]) -> Any:
        return parse_schema({"type": "record", "name": name, "fields": part}, named)

    head = parsed("Head", fields[:at])
    summary = parse_schema(fields[at]["type"][1], named)
    return _Parts(schema.header, head, summary, parsed("Tail", fields[at + 1 :]))


def encode_summary(summary: Mapping[str, Any]) -> bytes:
    """Return the bytes of a payload's summary in a record."""
    stream = BytesIO()
    schemaless_writer(stream, _parts().summary, summary)
    return stream.getvalue()


def encode_journey(head: Mapping[str, Any], summary: bytes, tail: Mapping[str, Any]) -> bytes:
    """Return a record of `journeys`, of which ``summary`` is empty if there is none."""
    header, of_head, _, of_tail = _parts()
    stream = BytesIO()
    stream.write(header)
    schemaless_writer(stream, of_head, head)
    stream.write(_SOME + summary if summary else _NONE)
    schemaless_writer(stream, of_tail, tail)
    return stream.getvalue()
