# SPDX-License-Identifier: Apache-2.0
"""What the real context of a transport and the one for tests share: checks on submitted records, and their forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from validator.codec.codec import Codec, RecordUnreadable
from validator.codec.json_form import datum_to_json, encode_input, encode_json, shown_json
from validator.core.handlers.handler import KIND
from validator.core.limits import RECORD_BYTES_MAX
from validator.errors import UserError
from validator.hexadecimal import to_hex
from validator.plugin.api import Record
from validator.plugin.job_api import Job, OwnTopic, TopicForm
from validator.plugin.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_RECORDS_MAX,
    CURSOR_BYTES_MAX,
    CURSORS_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
)
from validator.topics import CURSORS, INPUT_TOPICS, METRICS, OUTPUT_TOPICS
from validator.visible import shown


class JobTopic(NamedTuple):
    """A topic of a job that a transport uses, or its own one; ``is_input`` says whether the transport may write to it."""

    form: TopicForm
    is_input: bool


def job_topics(jobs: Iterable[Job], own: Iterable[OwnTopic] = ()) -> dict[str, JobTopic]:
    """Return the topics of some jobs, and a transport's own, by name. Raises `UserError` for one that the lanes or two of them have."""
    found: dict[str, JobTopic] = {}
    topics = [
        (f"job {job.name}", name, form, name in (*job.causes, *job.effects))
        for job in jobs
        for name, form in job.forms.items()
    ]
    for owner, topic, form, is_input in (*topics, *(("a transport", each.topic.name, each.form, True) for each in own)):
        if topic in found or topic in INPUT_TOPICS or topic in OUTPUT_TOPICS or topic in (CURSORS, METRICS):
            raise UserError(f"{owner}: topic {topic} belongs to somebody else already")
        found[topic] = JobTopic(form, is_input)
    return found


class RecordForms(NamedTuple):
    """Converts records between their JSON form and what Kafka holds, and checks what a transport writes and reads.

    ``protocol_of`` returns a lane's protocol; ``jobs`` are the topics of the transport's jobs.
    """

    codec: Codec
    protocol_of: Callable[[str], str]
    jobs: Mapping[str, JobTopic] = MappingProxyType({})

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics that a transport may write to."""
        return (*sorted(INPUT_TOPICS), *(topic for topic, each in self.jobs.items() if each.is_input))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The topics that a transport may read; those of jobs are all among them."""
        return (*OUTPUT_TOPICS, *self.jobs)

    def encode(self, topic: str, record: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return key and value of an input record. Raises ``ValueError`` as `validator.plugin.api.TransportContext.encode` does."""
        self._check_input(topic)
        lane = record.get("lane") if isinstance(record, Mapping) else None
        if not isinstance(lane, str):
            raise ValueError(f"{topic}: expected an object with a lane, found {shown(record)}")
        if topic in self.jobs:
            return self.encode_for_job(topic, record)
        try:
            value = encode_input(self.codec, INPUT_TOPICS[topic], dict(record), self.protocol_of(lane))
        except UserError as error:
            raise ValueError(f"{topic}: {error}") from None
        return lane.encode(), value

    def encode_for_job(self, topic: str, record: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return key and value of a record of a job's topic, be it an input or an output. Raises ``ValueError``."""
        form = self.jobs[topic].form
        try:
            value = encode_json(form.format.schema, dict(record))
            return form.key_of(value), value
        except (UserError, ValueError) as error:
            raise ValueError(f"{topic}: {error}") from None

    def decode(self, topic: str, value: bytes) -> dict[str, Any]:
        """Return a record in JSON form. Raises ``ValueError`` as `validator.plugin.api.TransportContext.decode` does."""
        if topic not in INPUT_TOPICS and topic not in self.outputs:
            raise ValueError(f"topic: expected one of {', '.join((*INPUT_TOPICS, *self.outputs))}, found {topic!r}")
        if type(value) is not bytes:
            raise ValueError(f"value: expected bytes, found {type(value).__name__}")
        try:
            if topic in self.jobs:
                format_ = self.jobs[topic].form.format
                return datum_to_json(format_.schema, format_.decode(value), digits=to_hex)
            return shown_json(topic, value, self.codec)
        except UserError as error:
            raise ValueError(str(error)) from None
        except RecordUnreadable as error:
            raise ValueError(f"{topic}: {error}") from None

    def check_submission(self, topic: str, key: bytes, value: bytes) -> None:
        """Raise ``ValueError`` as `validator.plugin.api.TransportContext.submit` does."""
        self._check_input(topic)
        for name, part in (("key", key), ("value", value)):
            if type(part) is not bytes:
                raise ValueError(f"{name}: expected bytes, found {type(part).__name__}")
        form = self.jobs[topic].form if topic in self.jobs else None
        bytes_max = RECORD_BYTES_MAX if form is None else form.bytes_max
        if len(value) > bytes_max:
            raise ValueError(f"value: expected at most {bytes_max} bytes, found {len(value)}")
        if form is not None:
            try:
                expected = form.key_of(value)
            except ValueError as error:
                raise ValueError(f"value: {topic}: {error}") from None
            if key != expected:
                raise ValueError(f"key: expected {shown(expected)} for this record of {topic}, found {shown(key)}")

    def output_topics(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Return the topics of a reader without repetitions. Raises ``ValueError`` for none, then for the first that is not an output."""
        names = tuple(dict.fromkeys(topics))
        if not names:
            raise ValueError("topics: expected at least one output topic, found none")
        for topic in names:
            if topic not in self.outputs:
                raise ValueError(f"topic: expected one of {', '.join(self.outputs)}, found {shown(topic)}")
        return names

    def _check_input(self, topic: str) -> None:
        if topic not in INPUT_TOPICS and not (topic in self.jobs and self.jobs[topic].is_input):
            raise ValueError(f"topic: expected one of {', '.join(self.inputs)}, found {topic!r}")


def check_enqueued(key: bytes, done: Callable[[str | None], None], headers: Mapping[str, bytes]) -> None:
    """Raise ``ValueError`` for a long key, a ``done`` that is no function, and headers."""
    if len(key) > KEY_BYTES_MAX:
        raise ValueError(f"key: expected at most {KEY_BYTES_MAX} bytes, found {len(key)}")
    if not callable(done):
        raise ValueError(f"done: expected a function, found {type(done).__name__}")
    if not isinstance(headers, Mapping):
        raise ValueError(f"headers: expected bytes by name, found {type(headers).__name__}")
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"headers: expected at most {HEADERS_MAX}, found {len(headers)}")
    size = 0
    for name, each in headers.items():
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ValueError(f"headers: expected names of printable characters, found {shown(name)}")
        if type(each) is not bytes:
            raise ValueError(f"headers: {shown(name)}: expected bytes, found {type(each).__name__}")
        size += len(name.encode()) + len(each)
    if size > HEADERS_BYTES_MAX:
        raise ValueError(f"headers: expected at most {HEADERS_BYTES_MAX} bytes of names and values, found {size}")


def check_commit(forms: RecordForms, records: Sequence[Record], cursors: Mapping[str, bytes]) -> None:
    """Raise ``ValueError`` as `validator.plugin.api.TransportContext.commit` does."""
    for record in records:
        forms.check_submission(*record)
    if len(records) > COMMIT_RECORDS_MAX:
        raise ValueError(f"records: expected at most {COMMIT_RECORDS_MAX}, found {len(records)}")
    size = sum(len(key) + len(value) for _, key, value in records)
    if size > COMMIT_BYTES_MAX:
        raise ValueError(f"records: expected at most {COMMIT_BYTES_MAX} bytes, found {size}")
    if not 1 <= len(cursors) <= CURSORS_MAX:
        raise ValueError(f"cursors: expected 1 to {CURSORS_MAX}, found {len(cursors)}")
    for name, cursor in cursors.items():
        if not isinstance(name, str) or not KIND.fullmatch(name):
            raise ValueError(f"cursors: expected names of 1 to 64 of a-z 0-9 . _ -, found {shown(name)}")
        if type(cursor) is not bytes:
            raise ValueError(f"cursors: {name}: expected bytes, found {type(cursor).__name__}")
        if len(cursor) > CURSOR_BYTES_MAX:
            raise ValueError(f"cursors: {name}: expected at most {CURSOR_BYTES_MAX} bytes, found {len(cursor)}")


NO_CURSORS: Final = "cursors: expected a transport that declares them, found one that does not"


Partition = tuple[str, int]
"""Topic without its prefix, and partition."""


def start_offsets(
    offsets: Mapping[Partition, int], begins: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Return where a reader starts in each partition: ``offsets``, but not before what retention has kept.

    Raises ``ValueError`` for the first of ``offsets`` whose partition is not read, that is not a number from 0, or is beyond the end.
    """
    starts = dict(begins)
    for place, offset in offsets.items():
        if place not in begins:
            raise ValueError(f"offsets: expected topics and partitions of this reader, found {shown(place)}")
        if type(offset) is not int or not 0 <= offset <= ends[place]:
            raise ValueError(
                f"offsets: {place[0]}/{place[1]}: expected a number from 0 to {ends[place]}, the end, found {shown(offset)}"
            )
        starts[place] = max(offset, begins[place])
    return starts


def check_timeout(timeout_s: float) -> None:
    """Raise ``ValueError`` if a timeout is negative or not a finite number."""
    if type(timeout_s) not in (int, float) or not 0 <= timeout_s < float("inf"):
        raise ValueError(f"timeout_s: expected seconds, at least 0, found {timeout_s!r}")
