# SPDX-License-Identifier: Apache-2.0
"""Source code that turns JSON into records of one schema: the bytes and values of `json_form`, at a fifth of the cost.

A transport of a busy chain sends every record through here. As in `compiled`, each schema gets a separate function that handles what is
usual: a plain object with every field, and hex in lower case without ``0x``. On anything else it raises an exception of `UNUSUAL`, and
`json_form` converts the record or says what is wrong with it. Nothing of a record or of a file ends up in the source but names of fields
and symbols, as literals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from validator.codec.encode import LONG_MAX, avro_long
from validator.codec.strict import ITEMS_MAX, Named
from validator.core.limits import U32_MAX

QuickWriter: TypeAlias = Callable[[Any], tuple[bytes, dict[str, Any]]]
"""Takes a record in JSON form, and returns its Kafka value and what a reader of the value returns."""

UNUSUAL: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a quick writer raises on JSON that it does not convert."""
LONG_RANGES: Final[dict[str | None, tuple[int, int]]] = {
    None: (-LONG_MAX - 1, LONG_MAX),
    "u32": (0, U32_MAX),
    "u63": (0, LONG_MAX),
}
UNSIGNED: Final = frozenset({"u64", "u128"})
"""Logical types of big-endian integers of a fixed size."""


def quick_writer(schema: Any, header: bytes, is_plain: Callable[[dict[str, Any]], bool]) -> QuickWriter | None:
    """Return the writer of a record's schema, or None if part of it is unusual.

    ``header`` is what every value begins with. ``is_plain`` says, by a record's attributes, whether its JSON is an object of its fields.
    """
    source = _Source(Named(schema), is_plain)
    try:
        value = source.value(schema, "given")
    except NotImplementedError:
        return None
    source.flush()
    lines = (
        "def write(given):",
        "    items = 0",
        "    parts = [header]",
        *source.lines,
        "    if items > items_max: raise ValueError",
        f"    return b''.join(parts), {value}",
    )
    names = {**source.names, "header": header, "long": avro_long, "items_max": ITEMS_MAX, "from_hex": bytes.fromhex}
    exec(compile("\n".join(lines), "<writer of a schema>", "exec"), names)  # noqa: S102 - the source is our own
    write: QuickWriter = names["write"]
    return write


class _Source:
    """Lines of source, what they refer to by name, and the parts of the value that the next line adds."""

    def __init__(self, types: Named, is_plain: Callable[[dict[str, Any]], bool]) -> None:
        self.types, self.is_plain = types, is_plain
        self.inside: list[str] = []
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.parts: list[str] = []
        self.depth = 1
        self.count = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def flush(self) -> None:
        """Add what appends the parts so far: before a line that is not always run, or run several times."""
        if self.parts:
            self.add(f"parts += ({', '.join(self.parts)},)")
        self.parts = []

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def expect(self, condition: str) -> None:
        self.add(f"if not ({condition}): raise ValueError")

    def value(self, schema: Any, given: str) -> str:
        """Add what writes the value in a variable, and return the expression of what a reader returns."""
        if isinstance(schema, list):
            return self.optional(schema, given)
        kind, attributes = self.types.resolve(schema)
        write = getattr(self, f"write_{kind}", None)
        if write is None:
            raise NotImplementedError(kind)
        found: str = write(attributes, given)
        return found

    def optional(self, branches: list[Any], given: str) -> str:
        others = [branch for branch in branches if branch != "null"]
        if len(branches) != 2 or len(others) != 1:
            raise NotImplementedError("a union of several types")
        into, null = self.name(), branches.index("null")
        self.flush()
        self.add(f"{into} = None", f"if {given} is None: parts.append({bytes((2 * null,))!r})", "else:")
        self.depth += 1
        self.parts.append(repr(bytes((2 - 2 * null,))))
        value = self.value(others[0], given)
        self.flush()
        self.add(f"{into} = {value}")
        self.depth -= 1
        return into

    def write_boolean(self, _attributes: dict[str, Any], given: str) -> str:
        self.expect(f"type({given}) is bool")
        self.parts.append(f"b'\\x01' if {given} else b'\\x00'")
        return given

    def write_long(self, attributes: dict[str, Any], given: str) -> str:
        low, high = LONG_RANGES[attributes.get("logicalType")]
        self.expect(f"type({given}) is int and {low} <= {given} <= {attributes.get('maximum', high)}")
        self.parts.append(f"long({given})")
        return given

    def write_string(self, _attributes: dict[str, Any], given: str) -> str:
        encoded = self.name()
        self.expect(f"type({given}) is str")
        self.add(f"{encoded} = {given}.encode()")
        self.parts += (f"long(len({encoded}))", encoded)
        return given

    def hexadecimal(self, given: str) -> str:
        into = self.name()
        self.add(f"{into} = from_hex({given})")
        self.expect(f"{into}.hex() == {given}")
        return into

    def write_bytes(self, _attributes: dict[str, Any], given: str) -> str:
        into = self.hexadecimal(given)
        self.parts += (f"long(len({into}))", into)
        return into

    def write_fixed(self, attributes: dict[str, Any], given: str) -> str:
        size = attributes["size"]
        if attributes.get("logicalType") in UNSIGNED:
            into = self.name()
            self.expect(f"type({given}) is int")
            self.add(f"{into} = {given}.to_bytes({size}, 'big')")
        else:
            into = self.hexadecimal(given)
            self.expect(f"len({into}) == {size}")
        self.parts.append(into)
        return into

    def write_enum(self, attributes: dict[str, Any], given: str) -> str:
        symbols = f"symbols_{self.name()}"
        self.names[symbols] = {symbol: avro_long(at) for at, symbol in enumerate(attributes["symbols"])}
        self.parts.append(f"{symbols}[{given}]")
        return given

    def write_record(self, attributes: dict[str, Any], given: str) -> str:
        name = attributes["name"]
        if name in self.inside or not self.is_plain(attributes):
            raise NotImplementedError(f"{name} contains itself, or its JSON is not an object of its fields")
        self.inside.append(name)
        fields = attributes["fields"]
        self.expect(f"type({given}) is dict and len({given}) == {len(fields)}")
        values = []
        for field in fields:
            member = self.name()
            self.add(f"{member} = {given}[{field['name']!r}]")
            values.append(f"{field['name']!r}: {self.value(field['type'], member)}")
        self.inside.pop()
        return f"{{{', '.join(values)}}}"

    def write_array(self, attributes: dict[str, Any], given: str) -> str:
        into, item = self.name(), self.name()
        self.expect(f"type({given}) is list")
        self.begin_block(given, f"{into} = []", f"for {item} in {given}:")
        value = self.value(attributes["items"], item)
        self.end_block(f"{into}.append({value})")
        return into

    def write_map(self, attributes: dict[str, Any], given: str) -> str:
        into, key, member = self.name(), self.name(), self.name()
        self.expect(f"type({given}) is dict")
        self.begin_block(given, f"{into} = {{}}", f"for {key}, {member} in {given}.items():")
        self.write_string({}, key)
        value = self.value(attributes["values"], member)
        self.end_block(f"{into}[{key}] = {value}")
        return into

    def begin_block(self, given: str, empty: str, loop: str) -> None:
        """Add what begins an array or map, which has a block only if it has items."""
        self.flush()
        self.add(empty, f"if {given}:")
        self.depth += 1
        self.add(f"items += len({given})", f"parts.append(long(len({given})))", loop)
        self.depth += 1

    def end_block(self, keep: str) -> None:
        self.flush()
        self.add(keep)
        self.depth -= 2
        self.parts.append(repr(b"\x00"))
