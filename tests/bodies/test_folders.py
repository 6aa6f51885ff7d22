# SPDX-License-Identifier: Apache-2.0
"""The transport `xcmp-bodies` carries bodies from an outbox to an inbox, on a real broker and in memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from validator_xcmp_bodies import records, transport
from validator_xcmp_bodies.bodies import Bodies
from validator_xcmp_bodies.job import Bucket, open_job
from validator_xcmp_bodies.outcomes import Settings

from tests.bodies.history import LANE, Named, event, receipt
from tests.contract.transport_backends import acquire
from tests.sending import send
from validator.config import Config
from validator.errors import LeaseLost, UserError
from validator.hexadecimal import from_hex
from validator.kafka.reader import TopicReader
from validator.kafka.topics import create_topics
from validator.plugin.api import TransportContext
from validator.plugin.job_api import JobContext, JobItem, JobRecord
from validator.plugin.registry import PluginError
from validator.testing.transport import MemoryTransport
from validator.transports.runner import (
    KafkaTransportContext,
    TransportGroup,
    choose_transport,
    create_topics_of_jobs,
)

SENDER, RECIPIENT = 1, 2
BODY, LARGE = [b"one", b"two"], [bytes(600_000), b"end"]
PATIENCE_S = 60.0


class Operator:
    """The job's state machine; it takes each record once, as many as there are."""

    def __init__(self, inputs: Callable[[], list[JobRecord]]) -> None:
        self.job = open_job(JobContext("xcmp-bodies", {}, {LANE: {"protocol": "xcmp-network", "limits": {}}}))
        self._bucket = Bucket(LANE, Bodies(Settings()), {})
        self._inputs = inputs
        self._taken: set[tuple[str, int, int]] = set()

    def work(self) -> list[tuple[str, bytes, bytes]]:
        """Return what the records that have arrived lead to."""
        rank = {topic: at for at, topic in enumerate((*self.job.causes, *self.job.effects))}
        new = [each for each in self._inputs() if each[:3] not in self._taken]
        new.sort(key=lambda each: (rank[each.topic], each.partition, each.offset))
        self._taken |= {each[:3] for each in new}
        items = [JobItem(*each[:3], content) for each in new for _, content in self.job.condense(each)]
        return [each[:3] for each in self._bucket.process(items)] if items else []


class OnKafka:
    """Both paras' transports on a broker."""

    def __init__(self, kafka: dict[str, Any], prefix: str, table: dict[str, Any]) -> None:
        self.kafka, self.prefix = kafka, prefix
        create_topics(kafka, prefix=prefix)
        self.config = Config.model_validate(
            {
                "kafka": kafka,
                "topics": {"prefix": prefix},
                "chains": {LANE: {"protocol": "xcmp-network"}},
                "transports": {"xcmp-bodies": table},
            }
        )

    def open(self, stack: ExitStack, para: int) -> TransportContext:
        chosen = choose_transport(self.config, f"xcmp-bodies.{LANE}-{para}")
        create_topics_of_jobs(self.config, chosen)
        group = TransportGroup(self.kafka, self.prefix, chosen.name)
        self.lease = stack.enter_context(group.lease(()))
        acquire(self.lease)
        return stack.enter_context(KafkaTransportContext(group, (), chosen.config, Event(), chosen.forms, self.lease))

    def send(self, *found: tuple[str, bytes, bytes]) -> None:
        send(self.kafka, self.prefix, found)

    def inputs(self) -> list[JobRecord]:
        with TopicReader(self.kafka, self.prefix, [records.INGRESS, records.RECEIPTS, records.BODIES]) as reader:
            return [
                JobRecord(each.topic, each.partition, each.offset, each.key, each.value)
                for each in reader.read_to_end()
            ]

    def lose_lease(self) -> None:
        self.lease._lose("the test says so")


class InMemory:
    """The same without a broker: the transports share their outputs."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table
        self._outputs: list[tuple[str, bytes, bytes]] = []

    def open(self, stack: ExitStack, para: int) -> TransportContext:
        name = f"{LANE}-{para}"
        self.memory = MemoryTransport(transport, self._table, transport=name, protocols={LANE: "xcmp-network"})
        self.memory.outputs = self._outputs
        return stack.enter_context(self.memory.open())

    def send(self, *found: tuple[str, bytes, bytes]) -> None:
        self._outputs += found

    def inputs(self) -> list[JobRecord]:
        offsets: dict[str, int] = {}
        found = []
        for topic, key, value in self._outputs:
            offsets[topic] = offsets.get(topic, -1) + 1
            if topic in (records.INGRESS, records.RECEIPTS, records.BODIES):
                found.append(JobRecord(topic, 0, offsets[topic], key, value))
        return found

    def lose_lease(self) -> None:
        self.memory.lose_lease()


class World:
    """A chain, the operator, and the two paras' folders."""

    def __init__(self, backend: OnKafka | InMemory, folder: Path) -> None:
        self.backend = backend
        self.outbox, self.inbox = folder / "out", folder / "in"
        self.operator = Operator(backend.inputs)
        self.stack = ExitStack()
        self.services: dict[int, transport.Service] = {}
        self._contexts: dict[int, ExitStack] = {}

    def start(self, para: int) -> None:
        """Start a para's transport, in place of the running one."""
        self.stop(para)
        stack = self._contexts[para] = ExitStack()
        context = self.backend.open(stack, para)
        self.services[para] = transport.Service(context, f"{LANE}/{para}", stack)

    def stop(self, para: int) -> None:
        if para in self._contexts:
            self._contexts.pop(para).close()

    def close(self) -> None:
        for para in list(self._contexts):
            self.stop(para)

    def chain(self, *found: Named) -> None:
        self.backend.send(*((topic, LANE.encode(), value) for topic, value in found))

    def queued(self, block: int, *bodies: list[bytes]) -> None:
        for at, payloads in enumerate(bodies):
            self.chain(event("queued", block, (SENDER + 2 * at, RECIPIENT, block), payloads, at))
        self.chain(receipt(block))

    def put(self, name: str, payloads: list[bytes]) -> None:
        self.outbox.mkdir(exist_ok=True)
        (self.outbox / ".new").write_text(json.dumps([each.hex() for each in payloads]))
        (self.outbox / ".new").replace(self.outbox / name)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let everybody work until a condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline
            for para in self._contexts:
                self.services[para].step()
            self.backend.send(*self.operator.work())

    def files(self) -> list[str]:
        return sorted(each.name for each in self.inbox.iterdir() if not each.name.startswith("."))

    def take(self) -> list[dict[str, Any]]:
        found = [json.loads((self.inbox / name).read_text()) for name in self.files()]
        for name in self.files():
            (self.inbox / name).unlink()
        return found

    def bodies(self, block: int) -> int:
        """Return how many parts have been written for the messages of a block."""
        parts = [records.decode_body(each.value)[1] for each in self.backend.inputs() if each.topic == records.BODIES]
        return sum(part.sent_at == block for part in parts)

    def state(self) -> dict[str, Any]:
        """Return what the outbox says; nothing before it has said anything."""
        path = self.outbox / "state.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"messages": []}
        return found


def table_of(folder: Path) -> dict[str, Any]:
    return {
        "paras": {
            f"{LANE}/{SENDER}": {"outbox": str(folder / "out")},
            f"{LANE}/{RECIPIENT}": {"inbox": str(folder / "in")},
        },
        "inbox_files_max": 2,
    }


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(transport, "POLL_S", 0.05)
    table = table_of(tmp_path)
    if request.param == "memory":
        backend: OnKafka | InMemory = InMemory(table)
    else:
        backend = OnKafka(request.getfixturevalue("kafka"), f"folders-{tmp_path.name}.", table)
    made = World(backend, tmp_path)
    yield made
    made.close()


def test_bodies_go_from_an_outbox_to_an_inbox_once_and_in_order(world: World) -> None:
    world.start(SENDER)
    world.start(RECIPIENT)
    world.put("later.json", LARGE)
    world.queued(5, BODY)
    world.queued(6, LARGE)
    world.until(lambda: any(each["held"] for each in world.state()["messages"]))
    assert world.files() == [], "what is held waits for what comes before it"
    assert [(each["sent_at"], each["file"]) for each in world.state()["messages"]] == [(5, None), (6, "later.json")]
    world.put("first.json", BODY)
    world.until(lambda: len(world.files()) == 2)
    first, second = world.take()
    assert [from_hex(each) for each in first["payloads"]] == BODY
    assert all(each.startswith("0x") for each in (first["root"], *first["payloads"]))
    assert [from_hex(each) for each in second["payloads"]] == LARGE
    assert (first["position"], second["acks"]) == (f"5/{SENDER}", [[5, SENDER], [6, SENDER]])
    assert second["watermark"] == {"block": 7, "acked": []}
    world.until(lambda: all(each["held"] for each in world.state()["messages"]))
    assert world.state()["credits"] == [
        {"recipient": RECIPIENT, "capacity": 8, "unread": 2, "watermark": {"block": 0, "acked": []}}
    ]

    sent = world.bodies(5) + world.bodies(6)
    world.start(RECIPIENT)
    world.start(SENDER)
    for block in (7, 8, 9):
        world.put(f"{block}.json", [bytes([block])])
        world.queued(block, [bytes([block])])
    world.until(lambda: len(world.files()) == 2)
    assert [each["position"] for each in world.take()] == [f"7/{SENDER}", f"8/{SENDER}"], (
        "full after two, and none again"
    )
    world.until(lambda: len(world.files()) == 1)
    assert [each["position"] for each in world.take()] == [f"9/{SENDER}"]
    assert world.bodies(5) + world.bodies(6) == sent, "what is held is not sent again"


def test_an_acknowledged_message_is_neither_listed_nor_sent(world: World) -> None:
    world.put("one.json", BODY)
    world.queued(5, BODY)
    world.chain(event("acknowledged", 6, (SENDER, RECIPIENT, 5), BODY), receipt(6))
    world.start(SENDER)
    world.until((world.outbox / "state.json").exists)
    assert world.state()["messages"] == []
    assert [each for each in world.backend.inputs() if each.topic == records.BODIES] == []


def test_a_process_that_is_not_active_any_more_delivers_nothing(world: World) -> None:
    world.start(SENDER)
    world.put("one.json", BODY)
    world.queued(5, BODY)
    world.until(lambda: bool(world.operator.work() or world.backend.inputs()[2:]))
    world.stop(SENDER)
    world.start(RECIPIENT)
    world.backend.lose_lease()
    with pytest.raises(LeaseLost):
        world.services[RECIPIENT].step()
    assert world.files() == []


# --- configuration ---


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"paras": {"polkadot": {"inbox": "in"}}}, "paras: expected names CHAIN/PARA, found 'polkadot'"),
        ({"paras": {"polkadot/x": {"inbox": "in"}}}, "paras: expected names CHAIN/PARA, found 'polkadot/x'"),
        ({"paras": {"polkadot/01": {"inbox": "in"}}}, "paras: expected names CHAIN/PARA, found 'polkadot/01'"),
        ({"paras": {"polkadot/4294967296": {"inbox": "in"}}}, "expected names CHAIN/PARA, found 'polkadot/4294967296'"),
        ({"paras": {"polkadot/\uff11": {"inbox": "in"}}}, "paras: expected names CHAIN/PARA, found 'polkadot/\uff11'"),
        ({"paras": {"polkadot/1": {}}}, "expected an outbox, an inbox or both, found neither"),
        ({"paras": {"polkadot/1": {"in": "x"}}}, "in: "),
        ({"inbox_files_max": 0}, "inbox_files_max: expected 1 to 100000, found 0"),
    ],
)
def test_a_wrong_table_is_one_line(table: dict[str, Any], text: str) -> None:
    with pytest.raises((PluginError, UserError)) as caught:
        MemoryTransport(transport, table, protocols={LANE: "xcmp-network"})
    assert text in str(caught.value)


def test_a_table_without_paras_has_no_transport() -> None:
    with pytest.raises(UserError, match="expected one transport, found none"):
        MemoryTransport(transport, {}, protocols={LANE: "xcmp-network"})
