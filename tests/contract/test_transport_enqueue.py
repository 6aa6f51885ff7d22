# SPDX-License-Identifier: Apache-2.0
"""Enqueued records have the same fate on a real broker and in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Condition, get_ident
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.contract.transport_backends import Backend, InMemory, OnKafka
from validator.core.limits import RECORD_BYTES_MAX
from validator.errors import UserError
from validator.kafka.reader import TopicReader
from validator.kafka.settings import admin_config
from validator.plugin.enqueued import CLOSED
from validator.plugin.limits import ENQUEUED_BYTES_MAX, ENQUEUED_RECORDS_MAX, KEY_BYTES_MAX
from validator.transports.record_queue import RecordQueue


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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
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
    ],
)
def test_wrong_enqueued_record_is_value_error(backend: Backend, arguments: Any, text: str) -> None:
    context = backend.start()
    with pytest.raises(ValueError, match="expected") as caught:
        context.enqueue(*arguments)
    assert str(caught.value).startswith(text)
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
