# SPDX-License-Identifier: Apache-2.0
"""Checks the structure of a large record before anything is built from it.

An array item may take one byte on the wire and about two hundred in memory, so a few megabytes of hostile bytes could become gigabytes.
Records below `WALK_BYTES_MIN` cannot grow to a harmful size and are not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from validator.core.limits import RECORDS_PER_BLOCK_MAX

if TYPE_CHECKING:
    from validator.codec.schemas import Json

WALK_BYTES_MIN: Final = 64 * 1024
"""Size in bytes from which a record is walked."""
ITEMS_MAX: Final = 4 * RECORDS_PER_BLOCK_MAX
"""Maximum array and map items of one record, all its arrays together."""


class TooManyItems(ValueError):
    """A record has more items than any of our records may have."""


def walk(schema: Json, data: bytes, start: int) -> int:
    """Skip over every part of the value of ``schema`` that starts at ``start``, and return the position after it.

    Raises ValueError if the bytes do not match the schema or end too early, and `TooManyItems`. Source: Avro 1.12 specification, "Binary
    encoding".
    """
    return _Walker(schema, data).skip(schema, start)


def named_types(schema: Json) -> dict[str, Json]:
    """Return every named type of a schema, at any depth, by name."""
    named: dict[str, Json] = {}
    if isinstance(schema, list):
        for branch in schema:
            named |= named_types(branch)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for field in schema.get("fields", ()):
            named |= named_types(field["type"])
        for part in ("items", "values"):
            named |= named_types(schema.get(part))
    return named


class _Walker:
    def __init__(self, schema: Json, data: bytes) -> None:
        self.data = data
        self.items = 0
        self.named = named_types(schema)

    def long(self, at: int) -> tuple[int, int]:
        result = shift = 0
        while True:
            if at >= len(self.data) or shift > 63:
                raise ValueError(f"no integer ends at byte {at}")
            byte = self.data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1), at
            shift += 7

    def forward(self, at: int, size: int) -> int:
        if not 0 <= size <= len(self.data) - at:
            raise ValueError(f"{size} bytes expected at byte {at}, {len(self.data) - at} left")
        return at + size

    def skip(self, schema: Json, at: int) -> int:
        if isinstance(schema, list):
            branch, at = self.long(at)
            if not 0 <= branch < len(schema):
                raise ValueError(f"branch {branch} of a union of {len(schema)}")
            return self.skip(schema[branch], at)
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "null":
                return at
            case "boolean":
                return self.forward(at, 1)
            case "int" | "long" | "enum":
                return self.long(at)[1]
            case "float":
                return self.forward(at, 4)
            case "double":
                return self.forward(at, 8)
            case "bytes" | "string":
                size, at = self.long(at)
                return self.forward(at, size)
            case "fixed":
                return self.forward(at, schema["size"])
            case "record":
                for field in schema["fields"]:
                    at = self.skip(field["type"], at)
                return at
            case "array" | "map":
                return self._skip_blocks(schema, at)
            case _:
                return self.skip(self.named[kind], at)

    def _skip_blocks(self, schema: Json, at: int) -> int:
        while True:
            count, at = self.long(at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = self.long(at)
            self.items += count
            if self.items > ITEMS_MAX:
                raise TooManyItems(f"at most {ITEMS_MAX} items, found {self.items}")
            for _ in range(count):
                if schema["type"] == "map":
                    at = self.skip("string", at)
                at = self.skip(schema["items" if schema["type"] == "array" else "values"], at)
