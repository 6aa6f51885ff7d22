# SPDX-License-Identifier: Apache-2.0
"""Compares the records on the output topics with the expectations of a model that shares no code with the core."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Final

from validator_simulators.demo.messages import Messages

Json = dict[str, Any]
VerdictKey = tuple[str, int, str, int]
"""Lane, block, kind, index."""

DIFFERENCES_KEPT: Final = 20

_PARTS: Final = ("accepted", "rejected", "duplicate", "dead", "waiting")


@dataclass
class Comparison:
    """Compares expected and observed records one by one, and describes the first `DIFFERENCES_KEPT` differences in words.

    A verdict agrees if its outcome and the messages received by it are as expected; an expectation without knowledge of these has None.
    If it is rejected, the error's kind and every field that the expectation names must agree too. ``verdicts_left`` counts, by lane and
    block, the verdicts still to come. A record that is read twice with the same content is a repetition, not a difference.
    """

    records_sent: int = 0
    expected_verdicts: dict[VerdictKey, Json] = field(default_factory=dict)
    expected_dispatches: dict[tuple[str, int, int], tuple[int, str, str]] = field(default_factory=dict)
    agreed: int = 0
    disagreed: int = 0
    dispatches_agreed: int = 0
    verdicts: int = 0
    repeated: int = 0
    dead_letters: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    status: dict[str, Json] = field(default_factory=dict)
    differences: deque[str] = field(default_factory=lambda: deque(maxlen=DIFFERENCES_KEPT))
    verdicts_left: Counter[tuple[str, int]] = field(default_factory=Counter)
    messages: Messages = field(default_factory=Messages)
    _seen: dict[tuple[Any, ...], Json] = field(default_factory=dict)

    # --- what is expected ---

    def expect_block(
        self, lane: str, block: int, verdicts: list[Json], dispatched: list[list[Any]], failing: frozenset[str]
    ) -> None:
        """Add a block's expected records: ``dispatched`` is [[para, payload in hex], ...] in order, ``failing`` the payloads that fail."""
        self.verdicts_left[lane, block] = len(verdicts)
        for verdict in verdicts:
            self.expected_verdicts[lane, block, verdict["kind"], verdict["index"]] = verdict
        for index, (para_id, payload) in enumerate(dispatched):
            self.expected_dispatches[lane, block, index] = para_id, payload, "failed" if payload in failing else "ok"

    # --- what is observed ---

    def observe(self, topic: str, record: Json) -> bool:
        """Take a record of an output topic in JSON, and return whether it is new."""
        if topic == "lanes":
            if "consumed" not in record:
                return True
            self.status[record["lane"]] = record
            return True
        if topic in ("verdicts", "dispatches", "channel-events", "ingress-events"):
            place = topic, record["lane"], record["block"], record.get("kind"), record["index"]
            if place in self._seen:
                if self._seen[place] == record:
                    self.repeated += 1
                else:
                    self._differ(f"{_at(place)}: emitted twice with different content")
                return False
            self._seen[place] = record
        self.messages.observe(topic, record)
        match topic:
            case "verdicts":
                self._verdict(record)
            case "dispatches":
                self._dispatch(record)
            case "channel-events":
                self.events[record["event"]] += 1
            case "dead-letters":
                self.dead_letters += 1
                self._differ(f"dead letter {record['reason']}: {record['detail']}", count=False)
        return True

    def _verdict(self, record: Json) -> None:
        place = record["lane"], record["block"], record["kind"], record["index"]
        self.verdicts += 1
        self.verdicts_left[place[:2]] -= 1
        if not record["ok"]:
            self.rejected[record["error"]["kind"]] += 1
        expected = self.expected_verdicts.get(place)
        found = {"ok": record["ok"], **({"error": record["error"]} if "error" in record else {})}
        if expected is None:
            self._differ(f"{_at(place)}: nothing expected, found {found}")
            return
        same = expected["ok"] == record["ok"]
        if same and not expected["ok"]:
            same = all(record["error"].get(name, _ABSENT) == value for name, value in expected["error"].items())
        if same and expected.get("received", []) in (None, record.get("received", [])):
            self.agreed += 1
        else:
            found["received"] = record.get("received", [])
            wanted = {name: expected[name] for name in ("ok", "error", "received") if name in expected}
            self._differ(f"{_at(place)}: expected {wanted}, found {found}")

    def _dispatch(self, record: Json) -> None:
        place = record["lane"], record["block"], record["index"]
        expected = self.expected_dispatches.get(place)
        if expected == (record["para_id"], record["payload"], record["outcome"]):
            self.dispatches_agreed += 1
        else:
            self._differ(
                f"{_at(place)}, dispatch: expected {expected or 'nothing'}, found one of para {record['para_id']}"
            )

    def _differ(self, text: str, *, count: bool = True) -> None:
        self.disagreed += count
        if len(self.differences) < DIFFERENCES_KEPT:
            self.differences.append(text)

    # --- results ---

    def consumed(self) -> int:
        """Return how many records the lanes report as consumed."""
        return sum(status["consumed"] for status in self.status.values())

    def complete(self) -> bool:
        """Return whether every expected record has arrived and the lanes have reported every record that was sent."""
        answered = self.agreed + self.dispatches_agreed + self.disagreed
        expected = len(self.expected_verdicts) + len(self.expected_dispatches)
        settled = all(status["waiting"] == 0 for status in self.status.values())
        return answered >= expected and self.consumed() >= self.records_sent and settled

    def missing(self) -> list[VerdictKey]:
        """Return the places of the verdicts that have not arrived."""
        return [place for place in self.expected_verdicts if ("verdicts", *place) not in self._seen]

    def missing_dispatches(self) -> int:
        """Return how many dispatches have not arrived."""
        return sum(
            ("dispatches", lane, block, None, index) not in self._seen
            for lane, block, index in self.expected_dispatches
        )

    def accounting(self) -> list[str]:
        """Describe every lane whose record counts do not add up; empty if all do."""
        problems = []
        for lane, status in sorted(self.status.items()):
            total = sum(status[part] for part in _PARTS)
            if status["consumed"] != total:
                problems.append(f"lane {lane}: consumed {status['consumed']}, but {' + '.join(_PARTS)} is {total}")
        if self.consumed() != self.records_sent:
            problems.append(f"{self.records_sent} records were sent, but the lanes consumed {self.consumed()}")
        return problems

    def problems(self) -> list[str]:
        """Describe everything that is not as expected; empty if all is."""
        found = list(self.differences)
        if missing := self.missing():
            found.append(f"{len(missing)} verdicts are missing, the first: {_at(missing[0])}")
        if dispatches := self.missing_dispatches():
            found.append(f"{dispatches} dispatches are missing")
        return found + self.accounting()


_ABSENT: Final = object()


def _at(place: tuple[Any, ...]) -> str:
    return "/".join(str(part) for part in place if part is not None)
