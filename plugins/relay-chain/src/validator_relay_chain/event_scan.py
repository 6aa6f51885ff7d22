# SPDX-License-Identifier: Apache-2.0
"""Finds where events begin and end without decoding them: a lane needs a few fields of candidates, and of most events nothing.

The types of a runtime's metadata become functions that step over a value. They take what every decoder takes alike: the shortest integers,
flags of 0 or 1, variants that there are. On anything else, and on types that are rare in events, the scan gives up, and the library decodes
the whole or says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from validator_relay_chain import layout

Skip: TypeAlias = Callable[[bytes, int], int]
"""Takes bytes and where a value begins, and returns where it ends, perhaps beyond the bytes. Raises `UNUSUAL`."""

UNUSUAL: Final = (IndexError, ValueError)
RECEIPT: Final = f"({layout.DESCRIPTOR},b32)"
"""The shape of a candidate in an event: its descriptor and the hash of its commitments."""
RECEIPT_BYTES: Final = layout.DESCRIPTOR_BYTES + 32
_SIZES: Final = {f"{sign}{8 * size}": size for sign in "ui" for size in (1, 2, 4, 8, 16, 32)}
"""Bytes of integers."""
_OWN_FORM: Final = frozenset({"Call", "Era", "RuntimeCall", "WrapperKeepOpaque"})
"""Last names of types that the library does not read as their metadata says."""
_RECORD: Final = ("phase", "event", "topics")


class Found(NamedTuple):
    """An event: where its record and the fields of the event begin, and where the record ends."""

    pallet: str
    name: str
    has_receipt: bool
    """Whether its fields begin with a candidate of the shape `RECEIPT`."""
    start: int
    fields: int
    end: int


class _Arm(NamedTuple):
    pallet: str
    name: str
    has_receipt: bool
    skip: Skip
    is_wanted: bool


class EventScanner:
    """Scans the values of ``System.Events`` of one runtime for the events of some pallets."""

    def __init__(self, types: Mapping[int, Any], events_type: int, pallets: Collection[str]) -> None:
        """Raises ``LookupError``, ``TypeError`` and ``ValueError`` if the metadata does not describe events."""
        skips = _Skips(types)
        record = types[types[events_type]["def"]["sequence"]["type"]]["def"]["composite"]["fields"]
        if tuple(field["name"] for field in record) != _RECORD:
            raise ValueError("events: expected phase, event and topics")
        phase, event, topics = (field["type"] for field in record)
        self._phase, self._topics = skips.of(phase), skips.of(topics)
        self._arms: dict[bytes, _Arm] = {}
        for pallet in types[event]["def"]["variant"]["variants"]:
            (inner,) = pallet["fields"]
            for each in types[inner["type"]]["def"]["variant"]["variants"]:
                fields = [field["type"] for field in each["fields"]]
                try:
                    skip = skips.of_all(fields)
                except _Unsupported:
                    continue
                self._arms[bytes((pallet["index"], each["index"]))] = _Arm(
                    pallet["name"],
                    each["name"],
                    bool(fields) and pallet["name"] in pallets and _is_receipt(types, fields[0]),
                    skip,
                    pallet["name"] in pallets,
                )

    def scan(self, raw: bytes) -> list[Found] | None:
        """Return the events of the pallets in their order, or None if anything is unusual."""
        phase, topics, arms = self._phase, self._topics, self._arms
        found = []
        try:
            count, at = length(raw, 0)
            for _ in range(count):
                start = at
                at = phase(raw, at)
                fields = at + 2
                pallet, name, has_receipt, skip, is_wanted = arms[raw[at:fields]]
                at = topics(raw, skip(raw, fields))
                if is_wanted:
                    found.append(Found(pallet, name, has_receipt, start, fields, at))
        except (KeyError, *UNUSUAL):
            return None
        return found if at == len(raw) else None


def length(data: bytes, at: int) -> tuple[int, int]:
    """Return a compact integer of up to four bytes and the position after it. Raises ``IndexError`` for any other."""
    first = data[at]
    if first & 3 == 0:
        return first >> 2, at + 1
    if first & 3 == 1 and data[at + 1]:
        return (first | data[at + 1] << 8) >> 2, at + 2
    if first & 3 == 2 and (data[at + 2] or data[at + 3]):
        return int.from_bytes(data[at : at + 4], "little") >> 2, at + 4
    raise IndexError


def _is_receipt(types: Mapping[int, Any], type_id: int) -> bool:
    try:
        return layout.shape(types, type_id) == RECEIPT
    except (LookupError, TypeError, ValueError):
        return False


class _Unsupported(Exception):
    """A type that the scan leaves to the library."""


class _Skips:
    """Makes the functions that step over values. A type is either its number of bytes, if every value is as long, or a function."""

    def __init__(self, types: Mapping[int, Any]) -> None:
        self._types = types
        self._known: dict[int, int | Skip | None] = {}
        """None for a type that is not supported, or whose function is being made: one that contains itself."""

    def of(self, type_id: int) -> Skip:
        """Return the function of a type. Raises `_Unsupported`."""
        return self.of_all([type_id])

    def of_all(self, type_ids: list[int]) -> Skip:
        """Return the function of values that follow each other. Raises `_Unsupported`."""
        return _function(_joined([self._made(each) for each in type_ids]))

    def _made(self, type_id: int) -> int | Skip:
        if type_id not in self._known:
            self._known[type_id] = None
            with suppress(_Unsupported):
                self._known[type_id] = self._make(type_id)
        found = self._known[type_id]
        if found is None:
            raise _Unsupported
        return found

    def _make(self, type_id: int) -> int | Skip:
        found = self._types[type_id]
        if found["path"] and found["path"][-1] in _OWN_FORM:
            raise _Unsupported
        ((kind, body),) = found["def"].items()
        match kind:
            case "primitive" if body == "bool":
                return _variant({0: 0, 1: 0})
            case "primitive" if body in _SIZES:
                return _SIZES[body]
            case "composite":
                return _joined([self._made(field["type"]) for field in body["fields"]])
            case "tuple":
                return _joined([self._made(each) for each in body])
            case "array":
                item = self._made(body["type"])
                return item * body["len"] if isinstance(item, int) else _repeated(item, lambda _, at: (body["len"], at))
            case "sequence":
                item = self._made(body["type"])
                return _list_of(item) if isinstance(item, int) else _repeated(item, length)
            case "compact":
                size = self._made(body["type"])
                if isinstance(size, int) and size >= 4:
                    return _compact(size)
            case "variant":
                return _variant(self._arms(body["variants"]))
        raise _Unsupported

    def _arms(self, variants: list[Any]) -> dict[int, int | Skip]:
        arms: dict[int, int | Skip] = {}
        for each in variants:
            try:
                arms[each["index"]] = _joined([self._made(field["type"]) for field in each["fields"]])
            except _Unsupported:
                continue
        return arms


def _function(made: int | Skip) -> Skip:
    return (lambda _, at: at + made) if isinstance(made, int) else made


def _joined(parts: list[int | Skip]) -> int | Skip:
    """Return what steps over several values, those of a fixed size at once."""
    steps: list[int | Skip] = []
    for part in parts:
        if isinstance(part, int) and steps and isinstance(steps[-1], int):
            steps[-1] += part
        elif part != 0:
            steps.append(part)
    if len(steps) <= 1:
        return steps[0] if steps else 0

    def all_of(data: bytes, at: int) -> int:
        for step in steps:
            at = at + step if isinstance(step, int) else step(data, at)
        return at

    return all_of


def _repeated(item: Skip, count_of: Callable[[bytes, int], tuple[int, int]]) -> Skip:
    def several(data: bytes, at: int) -> int:
        count, at = count_of(data, at)
        for _ in range(count):
            at = item(data, at)
        return at

    return several


def _list_of(size: int) -> Skip:
    def listed(data: bytes, at: int) -> int:
        first = data[at]
        if first & 3 == 0:
            return at + 1 + (first >> 2) * size
        count, at = length(data, at)
        return at + count * size

    return listed


def _compact(size: int) -> Skip:
    def compact(data: bytes, at: int) -> int:
        first = data[at]
        if first & 3 == 0:
            return at + 1
        if first & 3 != 3:
            return length(data, at)[1]
        end = at + 5 + (first >> 2)
        if end - at - 1 > size or not data[end - 1] or (first == 3 and data[end - 1] < 0x40):
            raise ValueError
        return end

    return compact


def _variant(arms: dict[int, int | Skip]) -> Skip:
    def variant(data: bytes, at: int) -> int:
        arm = arms.get(data[at])
        if arm is None:
            raise ValueError
        return at + 1 + arm if isinstance(arm, int) else arm(data, at + 1)

    return variant
