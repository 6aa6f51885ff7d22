# SPDX-License-Identifier: Apache-2.0
"""Compares the records of an output topic with expected ones, such as those that `validator simulate` writes."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from validator.codec.json_form import without_clause
from validator.errors import UserError
from validator.hexadecimal import bare

if TYPE_CHECKING:
    from collections.abc import Iterator

Json: TypeAlias = dict[str, Any]
RecordKey: TypeAlias = tuple[Any, ...]
"""The values of a record under the `PLACES` of its topic."""

PLACES: Final = {"verdicts": ("lane", "block", "kind", "index"), "dispatches": ("lane", "block", "index")}
"""By topic that can be compared, the members that say which of its records a record is."""

EXPECTED_RECORDS_MAX: Final = 2_000_000
"""Expected records that one comparison takes; it holds them in memory."""


class Sort(StrEnum):
    """How the records at a place disagree."""

    DIFFERS = "differs"
    UNEXPECTED = "unexpected"
    REPEATED = "repeated"
    MISSING = "missing"


class Difference(NamedTuple):
    """One disagreement. ``expected`` and ``found`` are records without their place, or of two records the members that differ."""

    place: Json
    sort: Sort
    expected: Json | None
    found: Json | None

    def to_json(self) -> Json:
        return {**self.place, "difference": str(self.sort), "expected": self.expected, "found": self.found}


class Expectation:
    """Expected records of a topic, and how many of those found so far agree.

    A found record agrees if it has every member of the expected one, with the same value; members that the expected one lacks do not
    matter, and null is as good as none. Objects inside a record compare in the same way, an error by its kind and fields. A second record
    at a place is a difference, too. Records of lanes about which nothing is expected do not count.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self.agreed = 0
        self.differences: Counter[Sort] = Counter()
        self._left: dict[RecordKey, Json] = {}
        self._seen: set[RecordKey] = set()
        self._lanes: set[str] = set()

    def expect(self, record: Json) -> None:
        """Add an expected record. Raises `UserError` if one is expected at its place already, or there are too many."""
        if self.count == EXPECTED_RECORDS_MAX:
            raise UserError(f"expected at most {EXPECTED_RECORDS_MAX} records, found more")
        place, rest = self._split(record)
        if place in self._left:
            raise UserError(f"expected one record for each place, found a second one at {_name(place)}")
        self._left[place] = rest
        self._lanes.add(place[0])
        self.count += 1

    def observe(self, record: Json) -> Difference | None:
        """Take a record of the topic and return how it disagrees, if it does."""
        place, found = self._split(record)
        if place[0] not in self._lanes:
            return None
        if place in self._seen:
            return self._differ(place, Sort.REPEATED, None, found)
        self._seen.add(place)
        expected = self._left.pop(place, None)
        if expected is None:
            return self._differ(place, Sort.UNEXPECTED, None, found)
        other = [name for name, value in expected.items() if not has(found.get(name), value)]
        if not other:
            self.agreed += 1
            return None
        wanted, got = ({name: record.get(name) for name in other} for record in (expected, found))
        return self._differ(place, Sort.DIFFERS, wanted, got)

    @property
    def complete(self) -> bool:
        """Whether a record has been found at every expected place."""
        return not self._left

    def missing(self) -> Iterator[Difference]:
        """Yield what has not been found, in the order in which it was expected; call it once, at the end."""
        for place, expected in self._left.items():
            yield self._differ(place, Sort.MISSING, expected, None)

    def summary(self) -> Json:
        """Return the counts, and as ``ok`` whether everything agrees."""
        return {
            "topic": self.topic,
            "ok": not self.differences.total(),
            "expected": self.count,
            "agreed": self.agreed,
            **{str(sort): self.differences[sort] for sort in Sort},
        }

    def _split(self, record: Json) -> tuple[RecordKey, Json]:
        names = PLACES[self.topic]
        rest = {name: value for name, value in without_clause(record).items() if name not in names}
        return tuple(record[name] for name in names), rest

    def _differ(self, place: RecordKey, sort: Sort, expected: Json | None, found: Json | None) -> Difference:
        self.differences[sort] += 1
        return Difference(dict(zip(PLACES[self.topic], place, strict=True)), sort, expected, found)


def has(found: Any, expected: Any) -> bool:
    """Return whether a found value is the expected one; a found object may have more members, and hex may begin with 0x or not."""
    if isinstance(expected, str) and isinstance(found, str):
        return bare(found) == bare(expected)
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        return all(has(*pair) and has(*reversed(pair)) for pair in zip(found, expected, strict=True))
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(has(found.get(name), value) for name, value in expected.items())
    return type(found) is type(expected) and found == expected


def _name(place: RecordKey) -> str:
    return "/".join(map(str, place))
