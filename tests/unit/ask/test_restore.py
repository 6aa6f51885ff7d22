# SPDX-License-Identifier: Apache-2.0
"""What a lane's state in a checkpoint is restored to, and why it cannot be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from validator.ask.state import restore
from validator.errors import UserError
from validator.lanes.parked import Fault, Parked


def stored(head: bytes) -> Any:
    return SimpleNamespace(lanes=["polkadot"], batch=0, load=lambda _: SimpleNamespace(head=head, slots={}))


def test_lane_that_was_parked_in_its_first_batch_has_no_state() -> None:
    parked = Parked(Fault.HANDLER, "lane polkadot: a handler hung", None).encode(None)
    with pytest.raises(
        UserError, match="no state yet: it was parked in its first batch: lane polkadot: a handler hung"
    ):
        restore(cast("Any", stored(parked)), "polkadot")


def test_head_that_is_damaged_is_named() -> None:
    with pytest.raises(UserError, match="its state in the checkpoint cannot be used: state head version 7, expected 1"):
        restore(stored(b"\x07"), "polkadot")
