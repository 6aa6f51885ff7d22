# SPDX-License-Identifier: Apache-2.0
"""Source code that reads records of one schema: the same values as `strict` returns, at a third of its cost.

Every value of a record passes through here, so each schema gets a separate function, without calls for what fits on a few lines. It
handles what is usual. On anything else it raises an exception of `UNUSUAL`, and `strict` decides on the record and says what is wrong.
Nothing of a record or of a file ends up in the source but names of fields, as literals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

CompiledReader: TypeAlias = Callable[[bytes, int], Any]
UNUSUAL: Final = (IndexError, ValueError, struct.error)
"""What a compiled reader raises on bytes that it does not accept."""

_ZIGZAG: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
_FORMATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_NAMES_MAX: Final = 64
"""Branches and symbols whose index takes one byte."""


def compiled(
    schema: Any,
    resolve: Callable[[Any], Any],
    several_bytes: Callable[[bytes, int], tuple[int, int]],
    items_max: int,
    *,
    name_records: bool,
) -> CompiledReader:
    """Return the reader of a schema without recursion.

    ``resolve`` returns the type that a name stands for, ``several_bytes`` reads an integer of more than two bytes.
    """
    source = _Source(resolve, name_records=name_records)
    value = source.value(schema)
    lines = (
        "def read(data, at):",
        "    items = 0",
        *source.lines,
        "    if at != len(data): raise ValueError",
        f"    return {value}",
    )
    names = {**source.names, "zigzag": _ZIGZAG, "several": several_bytes, "items_max": items_max}
    exec(compile("\n".join(lines), "<reader of a schema>", "exec"), names)  # noqa: S102 - the source is our own
    read: CompiledReader = names["read"]
    return read


class _Source:
    """Lines of source, and what they refer to by name."""

    def __init__(self, resolve: Callable[[Any], Any], *, name_records: bool) -> None:
        self.resolve = resolve
        self.name_records = name_records
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.depth = 1
        self.count = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def value(self, schema: Any) -> str:
        """Add what reads a value, and return the expression that it is in."""
        schema = self.resolve(schema)
        into = self.name()
        if isinstance(schema, list):
            self.union(schema, into)
            return into
        kind = schema if isinstance(schema, str) else schema["type"]
        getattr(self, f"read_{kind}")(schema, into)
        return into

    def long(self, into: str) -> None:
        self.add(
            f"{into} = data[at]",
            f"if {into} < 128:",
            f"    {into} = zigzag[{into}]; at += 1",
            "elif 0 < (more := data[at + 1]) < 128:",
            f"    {into} = {into} & 127 | more << 7; {into} = ({into} >> 1) ^ -({into} & 1); at += 2",
            "else:",
            f"    {into}, at = several(data, at)",
        )

    def size(self, into: str) -> None:
        self.long(into)
        self.add(f"if {into} < 0: raise ValueError")

    def union(self, branches: list[Any], into: str) -> None:
        self.add("branch = data[at]; at += 1")
        for index, branch in enumerate(branches[:_NAMES_MAX]):
            self.add(f"{'el' if index else ''}if branch == {2 * index}:")
            self.depth += 1
            value, resolved = self.value(branch), self.resolve(branch)
            is_named = self.name_records and isinstance(resolved, dict) and resolved["type"] == "record"
            self.add(f"{into} = ({resolved['name']!r}, {value})" if is_named else f"{into} = {value}")
            self.depth -= 1
        self.add("else: raise ValueError")

    def read_null(self, _schema: Any, into: str) -> None:
        self.add(f"{into} = None")

    def read_boolean(self, _schema: Any, into: str) -> None:
        self.add(f"{into} = (False, True)[data[at]]; at += 1")

    def read_long(self, _schema: Any, into: str) -> None:
        self.long(into)

    def read_int(self, _schema: Any, into: str) -> None:
        self.long(into)
        self.add(f"if not -{2**31} <= {into} < {2**31}: raise ValueError")

    def read_float(self, schema: Any, into: str) -> None:
        kind = schema if isinstance(schema, str) else schema["type"]
        self.names[f"unpack_{kind}"] = _FORMATS[kind].unpack_from
        self.add(f"({into},) = unpack_{kind}(data, at); at += {_FORMATS[kind].size}")
        self.add(f"if {into} != {into}: raise ValueError")

    read_double = read_float

    def read_bytes(self, _schema: Any, into: str) -> None:
        self.size(into)
        self.add(f"end = at + {into}; {into} = data[at:end]; at = end")

    def read_string(self, _schema: Any, into: str) -> None:
        self.size(into)
        self.add(f"end = at + {into}; {into} = data[at:end].decode(); at = end")

    def read_fixed(self, schema: Any, into: str) -> None:
        self.add(f"end = at + {schema['size']}; {into} = data[at:end]; at = end")

    def read_enum(self, schema: Any, into: str) -> None:
        symbols = f"symbols_{into}"
        self.names[symbols] = tuple(
            symbol for each in schema["symbols"][:_NAMES_MAX] for symbol in (each, None)
        )  # indices are even
        self.add(f"{into} = {symbols}[data[at]]; at += 1", f"if {into} is None: raise ValueError")

    def read_record(self, schema: Any, into: str) -> None:
        values = [f"{field['name']!r}: {self.value(field['type'])}" for field in schema["fields"]]
        self.add(f"{into} = {{{', '.join(values)}}}")

    def read_array(self, schema: Any, into: str) -> None:
        self.blocks(f"{into} = []", lambda: f"{into}.append({self.value(schema['items'])})")

    def read_map(self, schema: Any, into: str) -> None:
        def entry() -> str:
            key = self.value("string")
            self.add(f"if {key} in {into}: raise ValueError")
            return f"{into}[{key}] = {self.value(schema['values'])}"

        self.blocks(f"{into} = {{}}", entry)

    def blocks(self, empty: str, item: Callable[[], str]) -> None:
        """Add what reads at most one block of items. An item takes a byte or more, so that a false count ends with the bytes."""
        count = self.name()
        self.add(empty)
        self.size(count)
        self.add(f"if {count}:")
        self.depth += 1
        self.add(f"items += {count}", "if items > items_max: raise ValueError", f"for _ in range({count}):")
        self.depth += 1
        self.add(item())
        self.depth -= 1
        self.add("if data[at]: raise ValueError", "at += 1")
        self.depth -= 1
