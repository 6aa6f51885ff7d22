# SPDX-License-Identifier: Apache-2.0
"""A transport with its own topics writes and reads them with the same guarantees on a real broker and in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.transport_backends import LANE, Backend, InMemory, OnKafka
from validator.errors import UserError
from validator.plugin.job_api import DAY_MS, OwnTopic, RecordFormat, Topic, TopicForm, schemas
from validator.plugin.submission import job_topics

NAME = "notes"
FORMAT = RecordFormat(schemas(), "validator.Marker")
BYTES_MAX = 200
NOTE = {"lane": LANE, "block": 7, "consumed": []}


def key_of(value: bytes) -> bytes:
    """Return the lane of a note, which is a marker here: any record will do."""
    return str(FORMAT.decode(value)["lane"]).encode()


OWN = OwnTopic(Topic(NAME, None, "delete", DAY_MS, "notes of a transport"), TopicForm(FORMAT, key_of, BYTES_MAX))


@pytest.fixture(params=["kafka", "memory"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "memory":
        made: Backend = InMemory(own=(OWN,))
    else:
        name = request.getfixturevalue("tmp_path").name
        made = OnKafka(request.getfixturevalue("kafka"), f"own-{name}.", own=(OWN,))
    yield made
    made.close()


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
    for given, text in (
        ((NAME, b"other", value), "key: expected b'polkadot' for this record of notes, found b'other'"),
        ((NAME, key, b"x"), "value: notes: expected a record"),
        ((NAME, key, bytes(BYTES_MAX + 1)), f"value: expected at most {BYTES_MAX} bytes, found {BYTES_MAX + 1}"),
        (("other", key, value), "topic: expected one of blocks"),
    ):
        with pytest.raises(ValueError, match="^" + text.replace("'", ".")):
            context.submit(*given)


@pytest.mark.parametrize("name", ["blocks", "verdicts", "cursors"])
def test_topic_of_somebody_else_is_refused(name: str) -> None:
    topic = OWN._replace(topic=Topic(name, None, "delete", DAY_MS, ""))
    with pytest.raises(UserError, match=f"^a transport: topic {name} belongs to somebody else already$"):
        job_topics((), [topic])
    with pytest.raises(UserError, match="notes belongs to somebody else"):
        job_topics((), [OWN, OWN])
