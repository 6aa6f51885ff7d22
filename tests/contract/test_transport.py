# SPDX-License-Identifier: Apache-2.0
"""A transport's context gives the same guarantees on a real broker and in memory: for what it receives, submits, enqueues and commits."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Condition, get_ident
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.added_partitions import add_partitions
from tests.contract.transport_backends import (
    CONFIG,
    Backend,
    InMemory,
    Mistakes,
    OnKafka,
    assert_refused,
    wait,
)
from validator.codec.encode import Encoder
from validator.core.limits import RECORD_BYTES_MAX, U32_MAX
from validator.core.outcomes import InputKind, Verdict
from validator.errors import UserError
from validator.kafka.reader import TopicReader
from validator.kafka.settings import admin_config, producer_config
from validator.plugin.api import LeaseLost, Record, TransportContext
from validator.plugin.enqueued import CLOSED
from validator.plugin.limits import (
    CURSOR_BYTES_MAX,
    CURSORS_MAX,
    ENQUEUED_BYTES_MAX,
    ENQUEUED_RECORDS_MAX,
    KEY_BYTES_MAX,
)
from validator.protocols.router.features.errors import RequestNotInForce
from validator.testing.transport import MemoryTransport
from validator.topics import CURSORS
from validator.transports.output_reader import NUMBER_BYTES, Cursors
from validator.transports.record_queue import RecordQueue


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


WRONG_ARGUMENTS: Mistakes = [
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
]


def test_wrong_argument_is_value_error_and_writes_nothing(backend: Backend) -> None:
    assert_refused(backend.start(), WRONG_ARGUMENTS)
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


def test_verdict_is_what_watch_prints(backend: Backend) -> None:
    """Hex begins with 0x, the clause is in the error, and a request that never expires has no session at which it does."""
    encoder = Encoder("polkadot", bytes(32))
    violation = RequestNotInForce("cancel_open_request")
    refused = Verdict(InputKind.REQUEST, 17, 0, 2000, violation)
    never = Verdict(InputKind.REQUEST, 17, 1, 2000, expires_session=U32_MAX + 4)
    context = backend.start()
    shown = context.decode("verdicts", encoder.verdict(refused))
    fields = {"request": "cancel_open_request", "clause": violation.clause}
    assert shown["error"] == {"kind": "RequestNotInForce", **fields}
    assert "clause" not in shown
    assert (shown["runtime_digest"], shown["id"][:2]) == (f"0x{'00' * 32}", "0x")
    assert context.decode("verdicts", encoder.verdict(never))["expires_session"] is None
    assert context.decode("verdicts", encoder.verdict(never._replace(expires_session=9)))["expires_session"] == 9


WRONG_RECORDS: Mistakes = [
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
]


def test_wrong_record_is_value_error(backend: Backend) -> None:
    assert_refused(backend.start(), WRONG_RECORDS)


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


def block(context: TransportContext, number: int) -> Record:
    record = {"lane": "polkadot", "block": number, "candidates": 0, "requests": 0, "downward": 0}
    return ("blocks", *context.encode("blocks", record))


def test_a_commit_writes_records_and_cursors_and_the_next_process_finds_both(backend: Backend) -> None:
    context = backend.start()
    assert context.cursor("polkadot") is None
    context.commit([block(context, 1), block(context, 2)], {"polkadot": b"2", "kusama": b""})
    assert (context.cursor("polkadot"), context.cursor("kusama"), context.cursor("other")) == (b"2", b"", None)
    context.commit([block(context, 3)], {"polkadot": b"3"})
    context.commit([], {"polkadot": b"3 again"})
    again = backend.start()
    assert (again.cursor("polkadot"), again.cursor("kusama")) == (b"3 again", b"")
    assert backend.submitted() == [block(again, number) for number in (1, 2, 3)]


def test_a_process_that_has_lost_its_lease_commits_nothing(backend: Backend) -> None:
    context = backend.start()
    record = block(context, 1)
    backend.lose_lease()
    with pytest.raises(LeaseLost):
        context.commit([record], {"polkadot": b"1"})
    again = backend.start()
    assert again.cursor("polkadot") is None
    assert backend.submitted() == []


WRONG_COMMITS: Mistakes = [
    (lambda c: c.commit([("verdicts", b"", b"")], {"a": b""}), "topic: expected one of blocks, candidates, "),
    (lambda c: c.commit([("blocks", "", b"")], {"a": b""}), "key: expected bytes, found str"),
    (lambda c: c.commit([], {}), f"cursors: expected 1 to {CURSORS_MAX}, found 0"),
    (lambda c: c.commit([], {"A b": b""}), "cursors: expected names of 1 to 64 of a-z 0-9 . _ -, found 'A b'"),
    (lambda c: c.commit([], {"a": "text"}), "cursors: a: expected bytes, found str"),
    (
        lambda c: c.commit([], {"a": bytes(CURSOR_BYTES_MAX + 1)}),
        f"cursors: a: expected at most {CURSOR_BYTES_MAX} bytes, found {CURSOR_BYTES_MAX + 1}",
    ),
]


def test_mistakes_of_a_commit_are_refused_before_anything_is_written(backend: Backend) -> None:
    context = backend.start()
    assert_refused(context, WRONG_COMMITS)
    assert backend.submitted() == []
    assert context.cursor("a") is None


def test_a_transport_without_cursors_may_not_commit() -> None:
    backend = InMemory(cursors=False)
    context = backend.start()
    for call in (lambda: context.cursor("a"), lambda: context.commit([], {"a": b""})):
        with pytest.raises(ValueError, match="expected a transport that declares them"):
            call()
    backend.close()


class Unsure:
    """A producer of which one commit ends without an answer, before or after it took effect."""

    def __init__(self, producer: Producer, *, took_effect: bool) -> None:
        self._producer, self._took_effect = producer, took_effect

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def commit_transaction(self, timeout_s: float) -> None:
        if self._took_effect:
            self._producer.commit_transaction(timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))


@pytest.mark.parametrize("took_effect", [False, True])
def test_a_commit_without_an_answer_takes_effect_once(on_kafka: OnKafka, took_effect: bool) -> None:
    context: Any = on_kafka.start()
    context.commit([block(context, 1)], {"polkadot": b"1"})
    cursors: Cursors = context._cursors
    assert cursors._writer is not None
    cursors._writer.producer = Unsure(cursors._writer.producer, took_effect=took_effect)  # type: ignore[assignment]
    context.commit([block(context, 2)], {"polkadot": b"2"})
    context.commit([block(context, 3)], {"polkadot": b"3"})
    assert on_kafka.submitted() == [block(context, number) for number in (1, 2, 3)]
    assert on_kafka.start().cursor("polkadot") == b"3"


def test_a_former_process_that_does_not_know_it_yet_is_fenced_off(on_kafka: OnKafka) -> None:
    context: Any = on_kafka.start()
    context.commit([block(context, 1)], {"polkadot": b"1"})
    successor = Cursors(on_kafka.kafka, on_kafka.prefix, "t", lambda: None)
    successor.commit([block(context, 2)], {"polkadot": b"2"})
    with pytest.raises(LeaseLost):
        context.commit([block(context, 2)], {"polkadot": b"2"})
    assert on_kafka.submitted() == [block(context, number) for number in (1, 2)]


def test_added_partitions_bring_no_earlier_cursor_back(on_kafka: OnKafka) -> None:
    """Whichever partition is read last, it holds an old cursor under one of two names."""
    topic = on_kafka.prefix + CURSORS
    add_partitions(on_kafka.kafka, topic)
    producer = Producer(producer_config(on_kafka.kafka))
    for name, newest in (("a", 0), ("b", 2)):
        for partition, number in ((2 - newest, 4), (newest, 5)):
            value = number.to_bytes(NUMBER_BYTES, "big") + b"%d" % number
            producer.produce(topic, value, f"t/{name}".encode(), partition=partition)
    assert producer.flush(60) == 0
    cursors = Cursors(on_kafka.kafka, on_kafka.prefix, "t", lambda: None)
    assert (cursors.get("a"), cursors.get("b")) == (b"5", b"5")
    cursors.commit([], {"a": b"6"})
    again = Cursors(on_kafka.kafka, on_kafka.prefix, "t", lambda: None)
    assert (again.get("a"), again.get("b")) == (b"6", b"5")


class Results:
    """Collects what ``done`` is called with, and from which threads."""

    def __init__(self) -> None:
        self.reasons: dict[str, list[str | None]] = {}
        self.threads: set[int] = set()
        self._changed = Condition()

    def done(self, name: str) -> Callable[[str | None], None]:
        def done(reason: str | None) -> None:
            with self._changed:
                self.threads.add(get_ident())
                self.reasons.setdefault(name, []).append(reason)
                self._changed.notify_all()

        return done

    def wait(self, count: int) -> dict[str, list[str | None]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.reasons) >= count, 60), self.reasons
            return self.reasons


def test_enqueued_records_are_written_in_order_and_reported_once(backend: Backend) -> None:
    context, results = backend.start(), Results()
    sent = [("candidates", b"polkadot", b"%d" % at) for at in range(500)]
    assert all(context.enqueue(*each, results.done(str(at)), {"peer": b"\0\xff"}) for at, each in enumerate(sent))
    assert results.wait(500) == {str(at): [None] for at in range(500)}
    assert get_ident() not in results.threads
    assert backend.submitted() == sent


def test_headers_arrive(backend: Backend) -> None:
    context, results = backend.start(), Results()
    assert context.enqueue("blocks", b"k", b"v", results.done("with"), {"peer": b"\0\xff", "channel": b""})
    assert context.enqueue("blocks", b"k", b"w", results.done("without"))
    results.wait(2)
    if isinstance(backend, InMemory):
        headers = [record.headers for record in backend.memory.enqueued]
    else:
        with TopicReader(backend.kafka, backend.prefix, ["blocks"]) as reader:
            headers = [dict(record.headers) for record in reader.read_to_end()]
    assert headers == [{"peer": b"\0\xff", "channel": b""}, {}]


def test_enqueue_and_submit_may_be_called_by_done(backend: Backend) -> None:
    context, results = backend.start(), Results()

    def next_one(_: str | None) -> None:
        assert context.enqueue("blocks", b"k", b"2", results.done("2"))
        results.done("1")(None)

    assert context.enqueue("blocks", b"k", b"1", next_one)
    assert results.wait(2) == {"1": [None], "2": [None]}
    assert backend.submitted() == [("blocks", b"k", b"1"), ("blocks", b"k", b"2")]


def test_records_left_at_a_clean_end_are_written(backend: Backend) -> None:
    context, results = backend.start(), Results()
    for at in range(100):
        assert context.enqueue("blocks", b"k", b"%d" % at, results.done(str(at)))
    backend.close()
    assert results.reasons == {str(at): [None] for at in range(100)}
    assert len(backend.submitted()) == 100


def test_done_that_raises_ends_the_transport(backend: Backend) -> None:
    context, results = backend.start(), Results()

    def fail(_: str | None) -> None:
        raise KeyError("peer")

    assert context.enqueue("blocks", b"k", b"1", fail)
    assert context.enqueue("blocks", b"k", b"2", results.done("2"))
    results.wait(1)
    assert context.stopping
    for call in (
        lambda: context.enqueue("blocks", b"k", b"3", results.done("3")),
        lambda: context.receive(0),
        lambda: context.submit("blocks", b"k", b"3"),
        context.acknowledge,
        backend.close,
    ):
        with pytest.raises(RuntimeError, match="done raised KeyError: 'peer'"):
            call()
    assert backend.submitted() == [("blocks", b"k", b"1"), ("blocks", b"k", b"2")]


NOTHING = dict[str, bytes]()


ENQUEUED: list[tuple[Any, str]] = [
    (("verdicts", b"", b"", print, NOTHING), "topic: expected one of blocks, candidates, "),
    (("blocks", "k", b"", print, NOTHING), "key: expected bytes, found str"),
    (("blocks", b"", bytes(RECORD_BYTES_MAX + 1), print, NOTHING), f"value: expected at most {RECORD_BYTES_MAX} "),
    (("blocks", bytes(KEY_BYTES_MAX + 1), b"", print, NOTHING), "key: expected at most 65536 bytes, found 65537"),
    (("blocks", b"", b"", None, NOTHING), "done: expected a function, found NoneType"),
    (("blocks", b"", b"", print, [("a", b"")]), "headers: expected bytes by name, found list"),
    (("blocks", b"", b"", print, {str(at): b"" for at in range(33)}), "headers: expected at most 32, found 33"),
    (("blocks", b"", b"", print, {"": b""}), "headers: expected names of printable characters, found ''"),
    (("blocks", b"", b"", print, {"a\n": b""}), "headers: expected names of printable characters, found 'a\\n'"),
    (("blocks", b"", b"", print, {b"a": b""}), "headers: expected names of printable characters, found b'a'"),
    (("blocks", b"", b"", print, {"a": "b"}), "headers: 'a': expected bytes, found str"),
    (
        ("blocks", b"", b"", print, {"a": bytes(16_384)}),
        "headers: expected at most 16384 bytes of names and values,",
    ),
]


def test_wrong_enqueued_record_is_value_error_and_writes_nothing(backend: Backend) -> None:
    assert_refused(backend.start(), [(lambda c, given=given: c.enqueue(*given), text) for given, text in ENQUEUED])
    assert backend.submitted() == []


# --- on a broker only ---


def test_refused_record_gets_the_reason_and_the_next_one_is_written(on_kafka: OnKafka) -> None:
    context, results = on_kafka.start(), Results()
    largest = random.Random(1).randbytes(RECORD_BYTES_MAX)  # with its key, more than the topic takes
    assert context.enqueue("blocks", b"k", largest, results.done("large"))
    assert context.enqueue("blocks", b"k", b"small", results.done("small"))
    reasons = results.wait(2)
    assert reasons["small"] == [None]
    (reason,) = reasons["large"]
    assert reason is not None
    assert reason.endswith(" did not accept the record: Broker: Message size too large (MSG_SIZE_TOO_LARGE)")
    assert [value for _, _, value in on_kafka.submitted()] == [b"small"]


def test_record_of_a_deleted_topic_gets_the_reason(on_kafka: OnKafka) -> None:
    on_kafka.kafka = {**on_kafka.kafka, "topic.metadata.propagation.max.ms": 100}
    context, results = on_kafka.start(), Results()
    assert context.enqueue("blocks", b"k", b"1", results.done("before"))
    results.wait(1)
    admin = AdminClient(admin_config(on_kafka.kafka))
    for future in admin.delete_topics([f"{on_kafka.prefix}blocks"]).values():
        future.result()
    assert context.enqueue("blocks", b"k", b"2", results.done("after"))
    (reason,) = results.wait(2)["after"]
    assert reason is not None
    assert "did not accept the record: " in reason
    assert "known" in reason


def test_full_queue_takes_no_more_and_gets_a_reason_at_the_end() -> None:
    queue, results = RecordQueue({"bootstrap.servers": "127.0.0.1:1"}, "nowhere."), Results()
    taken = 0
    while queue.put("blocks", b"k", bytes(1 << 20), results.done(str(taken)), {"h": b"1"}):
        taken += 1
    assert taken == ENQUEUED_BYTES_MAX // ((1 << 20) + 3)
    while queue.put("blocks", b"", b"", results.done(str(taken)), {}):
        taken += 1
    assert taken == ENQUEUED_RECORDS_MAX
    assert results.reasons == {}
    queue.close(0)
    assert results.reasons == {str(at): [CLOSED] for at in range(taken)}
    assert get_ident() not in results.threads
    with pytest.raises(UserError, match="records cannot be enqueued any more: the transport has ended"):
        queue.put("blocks", b"", b"", results.done("late"), {})


def test_configuration_that_the_client_refuses_is_one_error_line() -> None:
    with pytest.raises(UserError, match=r"^\[kafka\]: the client does not accept it: "):
        RecordQueue({"bootstrap.servers": "127.0.0.1:1", "linger.ms": "soon"}, "nowhere.")
