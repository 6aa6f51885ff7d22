# SPDX-License-Identifier: Apache-2.0
"""Reports, in which a worker passes on what it knows of a lane or of a key of a plugin's job, or a transport what it knows of itself.

A report is a record of the topic `metrics`: compact JSON, since only processes of one deployment read it. ``set`` holds values that are
complete: they replace all earlier ones of the same reporter. ``add`` holds what counters have grown by since the last report. Each row has
the labels after the first, which is the reporter's name, and the value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from validator.metrics.definitions import BY_NAME, Kind, Metric
from validator.metrics.limits import LABEL_CHARACTERS_MAX, REPORT_BYTES_MAX, SERIES_PER_REPORTER_MAX, VALUE_MAX
from validator.metrics.own import Value, decode_own, encode_own

VERSION: Final = 1

LANE: Final = "lane"
TRANSPORT: Final = "transport"
KEY: Final = "key"
"""A key of a plugin's job."""

Labels: TypeAlias = tuple[str, ...]
Values: TypeAlias = dict[str, dict[Labels, float]]
"""By metric and labels."""


@dataclass(slots=True)
class Report:
    """What one reporter passes on; ``reporter`` is the name of what ``of`` says: a `LANE`, a `TRANSPORT`, a `KEY`.

    ``own`` has the definitions of a plugin's metrics by name, which only their plugin knows.
    """

    of: str
    reporter: str
    set: Values = field(default_factory=dict)
    add: Values = field(default_factory=dict)
    own: dict[str, Metric] = field(default_factory=dict)

    def put(self, name: str, value: float, *labels: object) -> None:
        self.set.setdefault(name, {})[tuple(map(str, labels))] = value

    def put_own(self, metrics: Iterable[Metric], values: Iterable[Value]) -> str | None:
        """Set the values of a plugin's metrics, unless the report becomes too large by them: return that in words."""
        before = dict(self.set)
        self.own = {metric.name: metric for metric in metrics}
        for name, labels, value in values:
            self.put(name, value, *labels)
        size = len(self.encode())
        if size <= REPORT_BYTES_MAX:
            return None
        self.set, self.own = before, {}
        return f"expected a report of at most {REPORT_BYTES_MAX} bytes, found {size}"

    def encode(self) -> bytes:
        document: dict[str, Any] = {
            "version": VERSION,
            self.of: self.reporter,
            "set": _rows(self.set),
            "add": _rows(self.add),
        }
        if self.own:
            document["own"] = encode_own(self.own.values())
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Report:
        """Return the report that a record holds; metrics that are not known here are left out.

        Raises ``ValueError``: it is too large, of another version, or not what `encode` writes.
        """
        if len(data) > REPORT_BYTES_MAX:
            raise ValueError(f"expected at most {REPORT_BYTES_MAX} bytes, found {len(data)}")
        try:
            document = json.loads(data)
        except RecursionError as error:
            raise ValueError("expected a report, found deep nesting") from error
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise ValueError(f"expected a report of version {VERSION}")
        of = next((each for each in (LANE, KEY) if each in document), TRANSPORT)
        reporter = _label(document.get(of))
        own = decode_own(of, document.get("own", []))
        known = BY_NAME | own
        report = cls(
            of, reporter, _values(of, known, document.get("set")), _values(of, known, document.get("add")), own
        )
        if any(known[name].kind is not Kind.COUNTER for name in report.add):
            raise ValueError("expected increments of counters only")
        return report


def _rows(values: Values) -> dict[str, list[list[Any]]]:
    return {name: [[*labels, value] for labels, value in rows.items()] for name, rows in values.items()}


def _values(of: str, known: Mapping[str, Metric], found: object) -> Values:
    if not isinstance(found, dict):
        raise ValueError("expected a table of metrics")
    values: Values = {}
    left = SERIES_PER_REPORTER_MAX
    for name, rows in found.items():
        metric = known.get(name)
        if metric is None:
            continue
        if metric.labels[:1] != (of,) or not isinstance(rows, list):
            raise ValueError(f"{name}: expected a list of values of a metric of a {of}")
        left -= len(rows)
        if left < 0:
            raise ValueError(f"expected at most {SERIES_PER_REPORTER_MAX} series")
        values[name] = dict(_row(row, len(metric.labels)) for row in rows)
    return values


def _row(row: object, length: int) -> tuple[Labels, float]:
    if not isinstance(row, list) or len(row) != length:
        raise ValueError(f"expected rows of {length} entries")
    *labels, value = row
    if type(value) not in (int, float) or not abs(value) <= VALUE_MAX:
        raise ValueError(f"expected a number between -{VALUE_MAX:g} and {VALUE_MAX:g}")
    return tuple(map(_label, labels)), float(value)


def _label(value: object) -> str:
    if not isinstance(value, str) or len(value) > LABEL_CHARACTERS_MAX or not value.isprintable():
        raise ValueError(f"expected a printable label of at most {LABEL_CHARACTERS_MAX} characters")
    return value
