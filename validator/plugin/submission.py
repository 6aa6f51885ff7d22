# SPDX-License-Identifier: Apache-2.0
"""What the real context of a transport and the one for tests share: checks on submitted records, and their forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from validator.codec.codec import Codec
from validator.codec.json_form import encode_input, to_json
from validator.core.limits import RECORD_BYTES_MAX
from validator.errors import UserError
from validator.plugin.limits import HEADERS_BYTES_MAX, HEADERS_MAX, KEY_BYTES_MAX
from validator.topics import INPUT_TOPICS, OUTPUT_TOPICS


class RecordForms(NamedTuple):
    """Converts records between their JSON form and what Kafka holds; ``protocol_of`` returns a lane's protocol."""

    codec: Codec
    protocol_of: Callable[[str], str]

    def encode(self, topic: str, record: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return key and value of an input record. Raises ``ValueError`` as `validator.plugin.api.TransportContext.encode` does."""
        if topic not in INPUT_TOPICS:
            raise ValueError(f"topic: expected one of {', '.join(sorted(INPUT_TOPICS))}, found {topic!r}")
        lane = record.get("lane") if isinstance(record, Mapping) else None
        if not isinstance(lane, str):
            raise ValueError(f"{topic}: expected an object with a lane, found {_shown(record)}")
        try:
            value = encode_input(self.codec, INPUT_TOPICS[topic], dict(record), self.protocol_of(lane))
        except UserError as error:
            raise ValueError(f"{topic}: {error}") from None
        return lane.encode(), value

    def decode(self, topic: str, value: bytes) -> dict[str, Any]:
        """Return a record in JSON form. Raises ``ValueError`` as `validator.plugin.api.TransportContext.decode` does."""
        if topic not in INPUT_TOPICS and topic not in OUTPUT_TOPICS:
            raise ValueError(f"topic: expected one of {', '.join((*INPUT_TOPICS, *OUTPUT_TOPICS))}, found {topic!r}")
        if type(value) is not bytes:
            raise ValueError(f"value: expected bytes, found {type(value).__name__}")
        try:
            return to_json(topic, value, self.codec)
        except UserError as error:
            raise ValueError(str(error)) from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_submission(topic: str, key: bytes, value: bytes) -> None:
    """Raise ``ValueError`` for an unknown input topic, a key or value that is not bytes, and a value longer than a record may be."""
    if topic not in INPUT_TOPICS:
        raise ValueError(f"topic: expected one of {', '.join(sorted(INPUT_TOPICS))}, found {topic!r}")
    for name, part in (("key", key), ("value", value)):
        if type(part) is not bytes:
            raise ValueError(f"{name}: expected bytes, found {type(part).__name__}")
    if len(value) > RECORD_BYTES_MAX:
        raise ValueError(f"value: expected at most {RECORD_BYTES_MAX} bytes, found {len(value)}")


def check_enqueued(
    topic: str, key: bytes, value: bytes, done: Callable[[str | None], None], headers: Mapping[str, bytes]
) -> None:
    """Raise ``ValueError`` as `check_submission` does, then for a long key, a ``done`` that is no function, and headers."""
    check_submission(topic, key, value)
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
            raise ValueError(f"headers: expected names of printable characters, found {_shown(name)}")
        if type(each) is not bytes:
            raise ValueError(f"headers: {_shown(name)}: expected bytes, found {type(each).__name__}")
        size += len(name.encode()) + len(each)
    if size > HEADERS_BYTES_MAX:
        raise ValueError(f"headers: expected at most {HEADERS_BYTES_MAX} bytes of names and values, found {size}")


def output_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics of a reader without repetitions. Raises ``ValueError`` for none, then for the first that is not an output."""
    names = tuple(dict.fromkeys(topics))
    if not names:
        raise ValueError("topics: expected at least one output topic, found none")
    for topic in names:
        if topic not in OUTPUT_TOPICS:
            raise ValueError(f"topic: expected one of {', '.join(OUTPUT_TOPICS)}, found {_shown(topic)}")
    return names


Place = tuple[str, int]
"""Topic without its prefix, and partition."""


def start_offsets(
    offsets: Mapping[Place, int], begins: Mapping[Place, int], ends: Mapping[Place, int]
) -> dict[Place, int]:
    """Return where a reader starts in each partition: ``offsets``, but not before what retention has kept.

    Raises ``ValueError`` for the first of ``offsets`` whose partition is not read, that is not a number from 0, or is beyond the end.
    """
    starts = dict(begins)
    for place, offset in offsets.items():
        if place not in begins:
            raise ValueError(f"offsets: expected topics and partitions of this reader, found {_shown(place)}")
        if type(offset) is not int or not 0 <= offset <= ends[place]:
            raise ValueError(
                f"offsets: {place[0]}/{place[1]}: expected a number from 0 to {ends[place]}, the end, found {_shown(offset)}"
            )
        starts[place] = max(offset, begins[place])
    return starts


def check_timeout(timeout_s: float) -> None:
    """Raise ``ValueError`` if a timeout is negative or not a finite number."""
    if type(timeout_s) not in (int, float) or not 0 <= timeout_s < float("inf"):
        raise ValueError(f"timeout_s: expected seconds, at least 0, found {timeout_s!r}")
