# SPDX-License-Identifier: Apache-2.0
"""`MemoryTransport`: what a plugin author's test can observe and control."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any

import pytest

from validator.errors import UserError
from validator.plugin.api import Manifest, Transport, TransportContext, hookimpl
from validator.plugin.enqueued import CLOSED, Enqueued
from validator.testing.transport import MemoryTransport

VERDICTS = [("verdicts", b"polkadot", b"%d" % at) for at in range(4)]
RECEIPT = {"lane": "polkadot", "block": 1, "parent_number": 0, "session": 0, "accepted": 0, "rejected": 0, "enacted": 0}
RECEIPT |= {"dispatched": 0, "weight_used": 0, "runtime_digest": "00" * 32, "state_root": None}


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
        return Manifest("forward", "1.0", (2, 0), Settings)

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


# --- gateways: enqueue and readers ---


def gateway(run: Any) -> MemoryTransport:
    class Gateway:
        @hookimpl
        def validator_manifest(self) -> Manifest:
            return Manifest("gateway", "1.0", (2, 0))

        @hookimpl
        def validator_transports(self, config: Any) -> Iterator[Transport]:
            yield Transport("gateway", run)

    return MemoryTransport(Gateway())


def nothing(context: TransportContext) -> None:
    """A transport whose tests use its context themselves."""


class Reports:
    """Collects results, and waits for them."""

    def __init__(self) -> None:
        self.results: list[str | None] = []
        self._changed = Condition()

    def __call__(self, reason: str | None) -> None:
        with self._changed:
            self.results.append(reason)
            self._changed.notify_all()

    def wait(self, count: int) -> list[str | None]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.results) >= count, 60), self.results
            return self.results


def test_held_records_are_written_in_order_when_released() -> None:
    memory, reports = gateway(nothing), Reports()
    with memory.open() as context:
        memory.hold()
        assert context.enqueue("blocks", b"k", b"1", reports, {"peer": b"a"})
        assert context.enqueue("blocks", b"k", b"2", reports)
        assert (memory.submitted, reports.results) == ([], [])
        memory.release()
        assert reports.wait(2) == [None, None]
    assert memory.submitted == [("blocks", b"k", b"1"), ("blocks", b"k", b"2")]
    assert memory.enqueued == [("blocks", b"k", b"1", {"peer": b"a"}), ("blocks", b"k", b"2", {})]


def test_records_that_are_held_at_the_end_get_a_reason() -> None:
    memory, reports = gateway(nothing), Reports()
    memory.hold()
    with memory.open() as context:
        assert context.enqueue("blocks", b"k", b"1", reports)
    assert reports.results == ["the transport ended before Kafka had confirmed the record, which it may have or not"]
    assert memory.submitted == []


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_wait_when_the_run_fails_or_loses_its_lease_get_a_reason(*, fails: bool) -> None:
    def run(context: TransportContext) -> None:
        memory.hold()
        assert context.enqueue("blocks", b"k", b"1", reports)
        if fails:
            raise OSError("peer")
        memory.lose_lease()

    memory, reports = gateway(run), Reports()
    with pytest.raises(OSError, match="peer") if fails else nullcontext():
        memory.run()
    assert reports.results == [CLOSED]


def test_refused_record_gets_the_reason() -> None:
    memory, reports = gateway(nothing), Reports()
    memory.refuse = lambda record: "blocks: too large" if record.value == b"large" else None
    with memory.open() as context:
        for value in (b"1", b"large", b"2"):
            assert context.enqueue("blocks", b"k", value, reports)
        assert reports.wait(3) == [None, "blocks: too large", None]
    assert [value for _, _, value in memory.submitted] == [b"1", b"2"]


def test_full_queue_takes_the_next_record_after_a_report() -> None:
    memory, reports = gateway(nothing), Reports()
    memory.enqueued_records_max = 2
    with memory.open() as context:
        memory.hold()
        assert [context.enqueue("blocks", b"k", b"%d" % at, reports) for at in range(3)] == [True, True, False]
        memory.release()
        reports.wait(2)
        assert context.enqueue("blocks", b"k", b"3", reports)
    assert [value for _, _, value in memory.submitted] == [b"0", b"1", b"3"]
    assert reports.results == [None] * 3


def test_bytes_of_waiting_records_are_bounded() -> None:
    waiting = Enqueued(records_max=10, bytes_max=100)
    first = waiting.add(60, print)
    assert first is not None
    assert waiting.add(41, print) is None
    assert waiting.add(40, print) is not None
    assert waiting.withdraw(first) is print
    assert waiting.withdraw(first) is None
    assert waiting.add(61, print) is None
    assert waiting.add(60, print) is not None


def test_result_is_reported_once() -> None:
    waiting, reports = Enqueued(), Reports()
    numbers = [waiting.add(1, reports) for _ in range(3)]
    waiting.settle(numbers[1] or 0, "no")
    waiting.settle(numbers[1] or 0, None)
    waiting.settle_all("closed")
    waiting.settle_all("closed")
    assert reports.results == ["no", "closed", "closed"]
    assert len(waiting) == 0


def test_live_run_waits_for_records_until_it_is_stopped() -> None:
    seen = Reports()

    def run(context: TransportContext) -> None:
        reader = context.reader(["verdicts", "receipts"])
        while not context.stopping:
            record = reader.receive(60)
            if record is not None:
                seen(f"{record.topic} {record.offset}")
            assert context.receive(0) is None

    memory = gateway(run)
    running = Thread(target=memory.run, kwargs={"live": True})
    running.start()
    memory.outputs.append(VERDICTS[0])
    assert seen.wait(1) == ["verdicts 0"]
    memory.emit("receipts", RECEIPT)
    memory.outputs.append(VERDICTS[1])
    assert seen.wait(3) == ["verdicts 0", "receipts 0", "verdicts 1"]
    memory.stop()
    running.join(60)
    assert not running.is_alive()


def test_live_receive_waits() -> None:
    memory = MemoryTransport(Plugin("forward"))
    running = Thread(target=memory.run, kwargs={"live": True, "submits_max": 2})
    running.start()
    memory.outputs += VERDICTS[:2]
    running.join(60)
    assert not running.is_alive()
    assert [value for _, _, value in memory.submitted] == [b"0", b"1"]


def test_enqueued_records_count_as_submitted() -> None:
    def run(context: TransportContext) -> None:
        while not context.stopping:
            context.enqueue("blocks", b"k", b"v", lambda _: None)

    memory = gateway(run)
    memory.run(submits_max=3)
    assert len(memory.submitted) >= 3
