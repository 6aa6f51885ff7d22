# SPDX-License-Identifier: Apache-2.0
"""A queue's front grows old with the chain, whether the operator runs or not."""

from __future__ import annotations

from typing import Any

import pytest
from validator_xcmp_bodies.alarms import aged


def queue(recipient: int, height: int, sent_at: int | None = None, *, alarm: bool = False) -> dict[str, Any]:
    front = None if sent_at is None else {"sent_at": sent_at, "sender": 1, "held": True}
    return {"lane": "polkadot", "recipient": recipient, "height": height, "front": front, "alarm": alarm}


@pytest.mark.parametrize(
    ("executed", "age", "alarm"),
    [
        ({}, 1, False),  # the chain says nothing: what the operator has seen counts
        ({"polkadot": 5}, 1, False),  # the operator has seen more
        ({"kusama": 99}, 1, False),
        ({"polkadot": 7}, 2, False),
        ({"polkadot": 8}, 3, True),
    ],
)
def test_the_age_counts_to_the_last_block_of_the_chain(executed: dict[str, int], age: int, alarm: bool) -> None:
    (row,) = aged([queue(2, 6, sent_at=5)], executed, 3)
    assert (row["front_age_blocks"], row["alarm"], row["height"]) == (age, alarm, 6)


def test_an_alarm_of_the_operator_stays_and_an_empty_queue_has_no_age() -> None:
    rows = aged([queue(3, 6, sent_at=5, alarm=True), queue(2, 4)], {"polkadot": 9}, 10)
    assert [(row["recipient"], row["front_age_blocks"], row["alarm"]) for row in rows] == [
        (2, None, False),
        (3, 4, True),
    ]


def test_the_last_record_of_a_queue_counts() -> None:
    (row,) = aged([queue(2, 6, sent_at=1), queue(2, 7)], {"polkadot": 9}, 3)
    assert (row["front_age_blocks"], row["alarm"], row["height"]) == (None, False, 7)
