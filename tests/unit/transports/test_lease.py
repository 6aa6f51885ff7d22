# SPDX-License-Identifier: Apache-2.0
"""The lease of a transport, without Kafka: what a process does that has joined while another one holds it."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from validator.transports import lease as module
from validator.transports.lease import Lease


@pytest.mark.parametrize("mine", ["a", "c"])
def test_process_that_joined_beside_an_active_one_leaves_again(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOIN_S_MAX", 0.0)
    lease: Any = Lease.__new__(Lease)
    calls: list[str] = []

    def subscribe(*_: object, **__: object) -> None:
        lease._assigned = True
        calls.append("subscribe")

    def poll(_: float) -> None:
        calls.append("poll")
        assert len(calls) < 100, "it stays a member"

    lease._topic, lease._stable = "t.blocks", True
    lease._members = lambda: {mine: "me", "b": "the active one"}
    lease._member = SimpleNamespace(
        subscribe=subscribe,
        unsubscribe=lambda: calls.append("unsubscribe"),
        poll=poll,
        memberid=lambda: mine,
    )
    assert lease._join(Event()) is False
    assert (calls[0], calls[-1]) == ("subscribe", "unsubscribe")
