# SPDX-License-Identifier: Apache-2.0
"""A transport's context gives the same guarantees on a real broker and in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.contract.transport_backends import CONFIG, Backend, InMemory, OnKafka, wait
from validator.core.limits import RECORD_BYTES_MAX
from validator.kafka.settings import producer_config
from validator.plugin.api import LeaseLost, TransportContext
from validator.testing.transport import MemoryTransport


def test_records_arrive_in_order_and_again_unless_acknowledged(backend: Backend) -> None:
    sent = [("verdicts", b"polkadot", b"%d" % at) for at in range(3)]
    backend.send(*sent, ("dispatches", b"polkadot", b"not asked for"))
    context = backend.start()
    assert context.config is CONFIG
    assert not context.stopping
    assert [wait(context, backend) for _ in range(2)] == sent[:2]
    context.acknowledge()
    assert wait(context, backend) == sent[2]
    context = backend.start()
    assert wait(context, backend) == sent[2]
    context.acknowledge()
    context.acknowledge()
    backend.send(("lanes", b"kusama", b"\0"))
    context = backend.start()
    assert wait(context, backend) == ("lanes", b"kusama", b"\0")
    assert context.receive(0) is None


def test_submitted_records_arrive(backend: Backend) -> None:
    context = backend.start()
    sent = [("blocks", b"polkadot", b""), ("candidates", b"polkadot", b"\0\1")]
    for record in sent:
        context.submit(*record)
        assert backend.submitted()[-1:] == [record] or record in backend.submitted()
    assert sorted(backend.submitted()) == sent


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda c: c.submit("verdicts", b"", b""),
            "topic: expected one of blocks, candidates, channel-requests, downward-messages, found 'verdicts'",
        ),
        (lambda c: c.submit("validator.blocks", b"", b""), "topic: expected one of "),
        (lambda c: c.submit("blocks", "polkadot", b""), "key: expected bytes, found str"),
        (lambda c: c.submit("blocks", b"", bytearray()), "value: expected bytes, found bytearray"),
        (
            lambda c: c.submit("blocks", b"", bytes(RECORD_BYTES_MAX + 1)),
            f"value: expected at most {RECORD_BYTES_MAX} bytes, found {RECORD_BYTES_MAX + 1}",
        ),
        (lambda c: c.receive(-1), "timeout_s: expected seconds, at least 0, found -1"),
        (lambda c: c.receive(float("nan")), "timeout_s: expected seconds, at least 0, found nan"),
        (lambda c: c.receive(None), "timeout_s: expected seconds, at least 0, found None"),
    ],
)
def test_wrong_argument_is_value_error(backend: Backend, call: Callable[[TransportContext], Any], text: str) -> None:
    context = backend.start()
    with pytest.raises(ValueError, match="expected") as caught:
        call(context)
    assert str(caught.value).startswith(text)
    assert backend.submitted() == []


CANDIDATE = {"lane": "polkadot", "block": 5, "index": 0, "para_id": 7, "hrmp_watermark": 4, "upward_messages": ["0xff"]}
CANDIDATE |= {"processed_downward_messages": 0, "horizontal_messages": []}


def test_records_are_converted_from_and_to_json(backend: Backend) -> None:
    context = backend.start()
    key, value = context.encode("candidates", CANDIDATE)
    context.submit("candidates", key, value)
    assert (key, context.decode("candidates", value)) == (
        b"polkadot",
        {**CANDIDATE, "relay_parent_number": None, "candidate_hash": None},
    )
    assert backend.submitted() == [("candidates", key, value)]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c: c.encode("verdicts", CANDIDATE), "topic: expected one of blocks, candidates, channel-requests, "),
        (lambda c: c.encode("candidates", {**CANDIDATE, "lane": None}), "candidates: expected an object with a lane, "),
        (lambda c: c.encode("candidates", [1]), "candidates: expected an object with a lane, found [1]"),
        (
            lambda c: c.encode("candidates", {**CANDIDATE, "para_id": -1}),
            "candidates: para_id: expected an integer from 0 to 4294967295, found -1",
        ),
        (lambda c: c.encode("candidates", {**CANDIDATE, "parra": 1}), "candidates: parra: no such field"),
        (lambda c: c.decode("nothing", b""), "topic: expected one of blocks, "),
        (lambda c: c.decode("verdicts", "x"), "value: expected bytes, found str"),
        (lambda c: c.decode("verdicts", b"x"), "verdicts: expected a record of "),
    ],
)
def test_wrong_record_is_value_error(backend: Backend, call: Callable[[TransportContext], Any], text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no such") as caught:
        call(backend.start())
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_nothing_works_without_the_lease(backend: Backend) -> None:
    backend.send(("verdicts", b"polkadot", b"1"), ("verdicts", b"polkadot", b"2"))
    context = backend.start()
    assert wait(context, backend) is not None
    reader = context.reader(["verdicts"])
    backend.lose_lease()
    assert context.stopping
    for call in (
        lambda: context.receive(60),
        context.acknowledge,
        lambda: context.submit("blocks", b"", b""),
        lambda: context.enqueue("blocks", b"", b"", print),
        lambda: context.reader(["verdicts"]),
        lambda: reader.receive(60),
        lambda: reader.seek({}),
        reader.ends,
    ):
        with pytest.raises(LeaseLost, match="this process is not the active one any more"):
            call()
    assert backend.submitted() == []
    assert wait(backend.start(), backend) == ("verdicts", b"polkadot", b"1")


def test_lane_has_the_records_of_its_protocol() -> None:
    memory = InMemory().memory
    plugin = memory.plugin.hooks["validator_transports"].plugin
    other = MemoryTransport(plugin, protocols={"westend": "xcmp"})
    request = {
        "lane": "westend",
        "block": 1,
        "index": 0,
        "kind": "close_channel",
        "origin": 1,
        "sender": 1,
        "column_index": 2,
    }
    key, value = other.forms.encode("channel-requests", request)
    assert (key, other.forms.decode("channel-requests", value)["lane"]) == (b"westend", "westend")
    with pytest.raises(ValueError, match="channel-requests: "):
        other.forms.encode("channel-requests", {**request, "lane": "polkadot"})


# --- on a broker only ---


def test_only_committed_records_are_received(on_kafka: OnKafka) -> None:
    producer = Producer(producer_config(on_kafka.kafka, transactional_id="t"))
    producer.init_transactions(30)
    for value, ends in ((b"dropped", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(on_kafka.prefix + "verdicts", value, b"polkadot")
        producer.flush(30)
        ends(30)
    assert on_kafka.start().receive(60) == ("verdicts", b"polkadot", b"kept")


def test_tombstones_are_skipped(on_kafka: OnKafka) -> None:
    producer = Producer(producer_config(on_kafka.kafka))
    producer.produce(on_kafka.prefix + "lanes", None, b"gone")
    producer.produce(on_kafka.prefix + "lanes", b"there", b"polkadot")
    assert producer.flush(30) == 0
    assert on_kafka.start().receive(60) == ("lanes", b"polkadot", b"there")


def test_waiting_transport_sees_stop_request(on_kafka: OnKafka) -> None:
    context = on_kafka.start()
    on_kafka.stop.set()
    assert context.receive(3600) is None
    assert context.stopping
