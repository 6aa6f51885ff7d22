# SPDX-License-Identifier: Apache-2.0
"""A transport that names a job, or declares separate topics, has the same guarantees for them on a real broker and in memory."""

from __future__ import annotations

from typing import Any

import pytest
from validator_xcmp_bodies import records
from validator_xcmp_bodies.limits import BODY_RECORD_BYTES_MAX
from validator_xcmp_bodies.outcomes import Wanted
from validator_xcmp_bodies.parts import measure

from tests.contract.test_transport import Results
from tests.contract.transport_backends import JOB, LANE, Backend, InMemory, Mistakes, assert_refused
from validator.errors import UserError
from validator.hexadecimal import to_hex
from validator.plugin.api import LeaseLost, OutputRecord, TransportContext
from validator.plugin.job_api import DAY_MS, OwnTopic, RecordFormat, Topic, TopicForm, schemas
from validator.plugin.submission import job_topics

BODY = records.encode_body(LANE, (1, 2, 5), [b"one", b"two"])[0]
ASKED = records.encode_outcomes(LANE, [Wanted(2, 1, 5, bytes(32), 6, 1)])[0]


NAME = "notes"
FORMAT = RecordFormat(schemas(), "validator.Marker")
BYTES_MAX = 200
NOTE = {"lane": LANE, "block": 7, "consumed": []}


def key_of(value: bytes) -> bytes:
    """Return the lane of a note, which is a marker here: any record will do."""
    return str(FORMAT.decode(value)["lane"]).encode()


OWN = OwnTopic(Topic(NAME, None, "delete", DAY_MS, "notes of a transport"), TopicForm(FORMAT, key_of, BYTES_MAX))


@pytest.fixture
def declared() -> dict[str, Any]:
    return {"jobs": (JOB,), "own": (OWN,)}


def read(context: TransportContext, *topics: str) -> OutputRecord:
    found = context.reader(topics).receive(60)
    assert found is not None
    return found


def test_a_record_for_a_job_is_written_and_read_back(backend: Backend) -> None:
    context, results = backend.start(), Results()
    context.submit(BODY.topic, BODY.key, BODY.value)
    assert context.enqueue(BODY.topic, BODY.key, BODY.value, results.done("again"), {"peer": b"x"})
    assert results.wait(1) == {"again": [None]}
    reader = context.reader([records.BODIES])
    found = [reader.receive(60), reader.receive(60)]
    assert found == [OutputRecord(BODY.topic, 0, at, BODY.key, BODY.value) for at in (0, 1)]


def test_what_a_job_emits_is_read_next_to_the_lanes_output(backend: Backend) -> None:
    backend.send((ASKED.topic, ASKED.key, ASKED.value), ("verdicts", b"polkadot", b"v"))
    reader = backend.start().reader([records.WANTED, "verdicts"])
    found = sorted(record for record in (reader.receive(60), reader.receive(60)) if record is not None)
    assert [(each.topic, each.key) for each in found] == [("verdicts", b"polkadot"), (records.WANTED, b"polkadot/1")]


def test_records_of_a_job_are_converted_from_and_to_json(backend: Backend) -> None:
    context = backend.start()
    shown = context.decode(BODY.topic, BODY.value)
    assert shown["pieces"] == [to_hex(b"one"), to_hex(b"two")]
    assert shown["root"] == to_hex(measure([b"one", b"two"]).root)
    assert context.encode(BODY.topic, shown) == (BODY.key, BODY.value)
    assert context.decode(ASKED.topic, ASKED.value)["replicas"] is False


INPUTS = "blocks, candidates, channel-requests, downward-messages, xcmp.bodies, notes"
RECORD = {"lane": LANE, "sender": 1, "recipient": 2, "sent_at": 5, "root": "00" * 32, "size": 1, "part": 0, "parts": 1}
RECORD |= {"continued": False, "continues": False, "pieces": ["00"]}


MISTAKES: Mistakes = [
    (lambda c: c.submit(records.WANTED, b"", b""), f"topic: expected one of {INPUTS}, found 'xcmp.wanted'"),
    (lambda c: c.submit("xcmp.other", b"", b""), f"topic: expected one of {INPUTS}, found 'xcmp.other'"),
    (lambda c: c.submit(BODY.topic, "key", BODY.value), "key: expected bytes, found str"),
    (
        lambda c: c.submit(BODY.topic, BODY.key, bytes(BODY_RECORD_BYTES_MAX + 1)),
        f"value: expected at most {BODY_RECORD_BYTES_MAX} bytes, found {BODY_RECORD_BYTES_MAX + 1}",
    ),
    (
        lambda c: c.submit(BODY.topic, BODY.key, b"no body"),
        "value: xcmp.bodies: expected a record validator.xcmp_bodies.Body, found bytes that start with",
    ),
    (
        lambda c: c.submit(BODY.topic, b"polkadot/3", BODY.value),
        "key: expected b'polkadot/2' for this record of xcmp.bodies, found b'polkadot/3'",
    ),
    (
        lambda c: c.enqueue(BODY.topic, b"polkadot/3", BODY.value, print),
        "key: expected b'polkadot/2' for this record of xcmp.bodies, found b'polkadot/3'",
    ),
    (
        lambda c: c.submit(*records.encode_body("kusama", (1, 2, 5), [b"one"])[0][:3]),
        "value: xcmp.bodies: lane: expected one of polkadot, found 'kusama'",
    ),
    (lambda c: c.encode(records.WANTED, RECORD), f"topic: expected one of {INPUTS}, found 'xcmp.wanted'"),
    (lambda c: c.encode(BODY.topic, {**RECORD, "lane": 1}), "xcmp.bodies: expected an object with a lane, found"),
    (
        lambda c: c.encode(BODY.topic, {**RECORD, "sender": -1}),
        "xcmp.bodies: sender: expected an integer from 0 to",
    ),
    (lambda c: c.encode(BODY.topic, {**RECORD, "lane": "x"}), "xcmp.bodies: lane: expected one of polkadot, found"),
    (lambda c: c.decode(records.HELD, b"x"), "xcmp.bodies.held: expected a record validator.xcmp_bodies.BodyHeld"),
    (lambda c: c.decode(records.HELD, "x"), "value: expected bytes, found str"),
    (lambda c: c.reader(["xcmp.other"]), "topic: expected one of verdicts, "),
    (lambda c: c.reader(["blocks"]), "topic: expected one of verdicts, "),
]


def test_mistakes_are_refused_before_anything_is_written(backend: Backend) -> None:
    context = backend.start()
    assert_refused(context, MISTAKES)
    reader = context.reader([records.BODIES, NAME])
    assert reader.receive(0.1) is None
    assert reader.ends() == {(records.BODIES, 0): 0, (NAME, 0): 0}


def test_nothing_reaches_a_job_without_the_lease(backend: Backend) -> None:
    context = backend.start()
    backend.lose_lease()
    for call in (
        lambda: context.submit(BODY.topic, BODY.key, BODY.value),
        lambda: context.enqueue(BODY.topic, BODY.key, BODY.value, print),
        lambda: context.reader([records.WANTED]),
    ):
        with pytest.raises(LeaseLost):
            call()


class Other:
    """A job that claims a topic."""

    name, causes, effects = "other", (), ()

    def __init__(self, topic: str) -> None:
        self.forms = {topic: TopicForm(records.formats()[records.WANTED], bytes, 10)}


@pytest.mark.parametrize("topics", [("verdicts",), ("blocks",), ("same", "same")])
def test_a_topic_belongs_to_one_job(topics: tuple[str, ...]) -> None:
    jobs: Any = [Other(topic) for topic in topics]
    with pytest.raises(UserError, match=rf"^job other: topic {topics[0]} belongs to somebody else already$"):
        job_topics(jobs)


def test_transport_without_jobs_knows_none_of_their_topics() -> None:
    memory = InMemory()
    with pytest.raises(ValueError, match="topic: expected one of blocks, "):
        memory.start().submit(BODY.topic, BODY.key, BODY.value)
    memory.close()


def test_forms_are_those_of_all_topics_of_the_job() -> None:
    assert {topic: each.is_input for topic, each in InMemory((JOB,)).memory.forms.jobs.items()} == {
        records.BODIES: True,
        records.HELD: False,
        records.REFUSED: False,
        records.WANTED: False,
        records.FLOW: False,
        records.QUEUES: False,
    }


def test_what_is_committed_with_a_cursor_is_read_back(backend: Backend) -> None:
    context = backend.start()
    key, value = context.encode(NAME, NOTE)
    context.commit([(NAME, key, value)], {"at": b"7"})
    record = context.reader([NAME]).receive(60)
    assert record is not None
    assert record[:4] == (NAME, 0, 0, b"polkadot")
    assert context.decode(NAME, record.value)["block"] == 7
    assert backend.start().cursor("at") == b"7"


def test_records_are_checked_as_those_of_jobs(backend: Backend) -> None:
    context = backend.start()
    key, value = context.encode(NAME, NOTE)
    mistakes: Mistakes = [
        (
            lambda c: c.submit(NAME, b"other", value),
            "key: expected b'polkadot' for this record of notes, found b'other'",
        ),
        (lambda c: c.submit(NAME, key, b"x"), "value: notes: expected a record"),
        (
            lambda c: c.submit(NAME, key, bytes(BYTES_MAX + 1)),
            f"value: expected at most {BYTES_MAX} bytes, found {BYTES_MAX + 1}",
        ),
        (lambda c: c.submit("other", key, value), "topic: expected one of blocks"),
    ]
    assert_refused(context, mistakes)


@pytest.mark.parametrize("name", ["blocks", "verdicts", "cursors"])
def test_topic_of_somebody_else_is_refused(name: str) -> None:
    topic = OWN._replace(topic=Topic(name, None, "delete", DAY_MS, ""))
    with pytest.raises(UserError, match=f"^a transport: topic {name} belongs to somebody else already$"):
        job_topics((), [topic])
    with pytest.raises(UserError, match="notes belongs to somebody else"):
        job_topics((), [OWN, OWN])
