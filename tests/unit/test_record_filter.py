# SPDX-License-Identifier: Apache-2.0
"""What a filter takes of records in JSON form."""

from __future__ import annotations

from typing import Any

import pytest

from validator.record_filter import RecordFilter

VERDICT = {
    "lane": "polkadot",
    "kind": "candidate",
    "para_id": 2000,
    "block": 7,
    "ok": False,
    "error": {"kind": "OutboundHrmp/NoSuchChannel"},
    "messages": [{"recipient": 2001, "sequence_number": 7}, {"recipient": 2002, "sequence_number": 1}],
}
ACCEPTED = VERDICT | {"ok": True, "error": None}
DISPATCH = {"lane": "polkadot", "kind": "remark", "para_id": 2000, "outcome": "unsupported", "messages": []}
EVENT = {"lane": "kusama", "block": 8, "event": "opened", "sender": 2000, "recipient": 2001}
RECEIPT = {"lane": "polkadot", "accepted": 3, "rejected": 1}
RECORDS = {"verdict": VERDICT, "accepted": ACCEPTED, "dispatch": DISPATCH, "event": EVENT, "receipt": RECEIPT}


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ({}, "verdict accepted dispatch event receipt"),
        ({"lane": "polkadot"}, "verdict accepted dispatch receipt"),
        ({"para": 2000}, "verdict accepted dispatch event"),
        ({"para": 2001}, "event"),
        ({"para": 0}, ""),
        ({"sender": 2000}, "verdict accepted dispatch event"),
        ({"sender": 2001}, ""),
        ({"recipient": 2001}, "verdict accepted event"),
        ({"recipient": 2002}, "verdict accepted"),
        ({"recipient": 2000}, ""),
        ({"kind": "candidate"}, "verdict accepted"),
        ({"kind": "opened"}, "event"),
        ({"outcome": "rejected"}, "verdict"),
        ({"outcome": "accepted"}, "accepted"),
        ({"outcome": "unsupported"}, "dispatch"),
        ({"rejected": True}, "verdict dispatch"),
        ({"error": "OutboundHrmp"}, "verdict"),
        ({"error": "OutboundHrmp/NoSuchChannel"}, "verdict"),
        ({"error": "Outbound"}, ""),
        ({"from_block": 7}, "verdict accepted event"),
        ({"from_block": 8}, "event"),
        ({"to_block": 7}, "verdict accepted"),
        ({"from_block": 0, "to_block": 6}, ""),
        ({"from_block": 7, "to_block": 7, "rejected": True}, "verdict"),
        ({"lane": "polkadot", "recipient": 2001, "outcome": "accepted"}, "accepted"),
    ],
)
def test_takes(wanted: dict[str, Any], taken: str) -> None:
    assert [name for name, record in RECORDS.items() if RecordFilter(**wanted).takes(record)] == taken.split()


def test_dispatch_that_was_handled_is_not_rejected() -> None:
    assert not RecordFilter(rejected=True).takes(DISPATCH | {"outcome": "ok"})


@pytest.mark.parametrize("status", ["waiting", "received", "dispatched", "dropped"])
def test_outcome_is_also_the_status_of_a_message(status: str) -> None:
    message = {"lane": "polkadot", "sender": 2000, "recipient": 2004, "kind": "horizontal", "status": status}
    assert RecordFilter(outcome=status).takes(message)
    assert not RecordFilter(outcome="accepted").takes(message)
    assert not RecordFilter(rejected=True).takes(message)
