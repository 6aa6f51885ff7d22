# SPDX-License-Identifier: Apache-2.0
"""Selects output records in JSON form, by what a reader knows of them: the lane, the block, the paras, the kind, the outcome, the error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from validator.errors import is_below

PARA_FIELDS: Final = ("para_id", "sender", "recipient")
"""Fields that name a para."""

ACCEPTED: Final = "accepted"
REJECTED: Final = "rejected"


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records are wanted; None and False leave a filter out. A record without what a filter asks for is not wanted.

    ``para`` is any para that the record is about. ``sender`` and ``recipient`` are the fields of these names; a record that lists
    ``messages`` without a sender has its para as their sender, and the messages' recipients. ``kind`` is also the ``event`` of a channel
    event, ``outcome`` also ``accepted`` or ``rejected`` for a verdict, and the ``status`` of a message. ``rejected`` takes verdicts with an
    error, and dispatches whose outcome is not ``ok``; ``error`` takes verdicts with an error of a kind, or of a kind below it.
    ``from_block`` and ``to_block`` are the first and the last block.
    """

    lane: str | None = None
    para: int | None = None
    sender: int | None = None
    recipient: int | None = None
    kind: str | None = None
    outcome: str | None = None
    rejected: bool = False
    error: str | None = None
    from_block: int | None = None
    to_block: int | None = None

    def takes(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record is wanted."""
        if self.lane is not None and record.get("lane") != self.lane:
            return False
        if self.para is not None and all(record.get(name) != self.para for name in PARA_FIELDS):
            return False
        if self.sender is not None and record.get("sender" if "sender" in record else "para_id") != self.sender:
            return False
        if self.recipient is not None and self.recipient not in _recipients(record):
            return False
        if self.kind is not None and self.kind not in (record.get("kind"), record.get("event")):
            return False
        outcome = _outcome(record)
        if self.outcome is not None and outcome != self.outcome:
            return False
        if self.rejected and (outcome in (None, ACCEPTED, "ok") or "status" in record):
            return False
        if not self._takes_block(record.get("block")):
            return False
        if self.error is not None:
            error = record.get("error")
            return isinstance(error, Mapping) and is_below(error["kind"], self.error)
        return True

    def _takes_block(self, block: int | None) -> bool:
        if self.from_block is None and self.to_block is None:
            return True
        if block is None or (self.from_block is not None and block < self.from_block):
            return False
        return self.to_block is None or block <= self.to_block


def _recipients(record: Mapping[str, Any]) -> set[Any]:
    if "recipient" in record:
        return {record["recipient"]}
    return {message["recipient"] for message in record.get("messages") or ()}


def _outcome(record: Mapping[str, Any]) -> Any:
    if "ok" in record:
        return ACCEPTED if record["ok"] else REJECTED
    return record.get("outcome", record.get("status"))
