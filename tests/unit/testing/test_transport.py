# SPDX-License-Identifier: Apache-2.0
"""`MemoryTransport`: what a plugin author's test can observe and control."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from validator.errors import UserError
from validator.plugin.api import Manifest, Transport, TransportContext, hookimpl
from validator.testing.transport import MemoryTransport

VERDICTS = [("verdicts", b"polkadot", b"%d" % at) for at in range(4)]


@dataclass(frozen=True)
class Settings:
    every: int = 1


def forward(context: TransportContext) -> None:
    """Submit each received record to an input; acknowledge once every ``every`` records."""
    count = 0
    while not context.stopping:
        record = context.receive(1)
        if record is not None:
            context.submit("blocks", record[1], record[2])
            count += 1
            if count % context.config.every == 0:
                context.acknowledge()


class Plugin:
    def __init__(self, *names: str) -> None:
        self.names = names

    @hookimpl
    def validator_manifest(self) -> Manifest:
        return Manifest("forward", "1.0", (1, 0), Settings)

    @hookimpl
    def validator_transports(self, config: Any) -> Iterator[Transport]:
        for name in self.names:
            yield Transport(name, forward, ("verdicts",))


def test_run_ends_when_records_end_and_continues_with_new_ones() -> None:
    memory = MemoryTransport(Plugin("forward"), outputs=[("dispatches", b"", b"x"), *VERDICTS[:2]])
    memory.run()
    assert memory.submitted == [("blocks", b"polkadot", b"0"), ("blocks", b"polkadot", b"1")]
    memory.run()
    assert len(memory.submitted) == 2
    memory.outputs += VERDICTS[2:]
    memory.run()
    assert [value for _, _, value in memory.submitted] == [b"0", b"1", b"2", b"3"]


def test_unacknowledged_records_are_received_again() -> None:
    memory = MemoryTransport(Plugin("forward"), {"every": 2}, outputs=VERDICTS)
    memory.run(receives_max=3)
    memory.run()
    assert [value for _, _, value in memory.submitted] == [b"0", b"1", b"2", b"2", b"3"]
    assert memory.acknowledged == 4


def test_run_can_stop_after_submission() -> None:
    memory = MemoryTransport(Plugin("forward"), outputs=VERDICTS)
    memory.run(submits_max=1)
    assert (len(memory.submitted), memory.acknowledged) == (1, 1)
    memory.run(receives_max=0)
    assert len(memory.submitted) == 1


def test_transport_is_chosen_by_name() -> None:
    assert MemoryTransport(Plugin("a", "b"), transport="b").transport.name == "b"
    for plugin, name, text in (
        (Plugin("a", "b"), None, "expected one transport, found a, b"),
        (Plugin("a"), "c", "expected one transport 'c', found a"),
        (Plugin(), None, "expected one transport, found none"),
    ):
        with pytest.raises(UserError, match=text):
            MemoryTransport(plugin, transport=name)


def test_invalid_configuration_is_refused() -> None:
    with pytest.raises(UserError, match=r"config\.evry: no such key"):
        MemoryTransport(Plugin("forward"), {"evry": 1})
    with pytest.raises(UserError, match=r"no installed plugin of group validator\.transports has this name"):
        MemoryTransport("carrier-pigeon")
