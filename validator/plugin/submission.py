# SPDX-License-Identifier: Apache-2.0
"""What the real context of a transport and the one for tests share: checks on submitted records, and their forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from validator.codec.codec import Codec
from validator.codec.json_form import encode_input, to_json
from validator.core.limits import RECORD_BYTES_MAX
from validator.errors import UserError
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


def check_timeout(timeout_s: float) -> None:
    """Raise ``ValueError`` if a timeout is negative or not a finite number."""
    if type(timeout_s) not in (int, float) or not 0 <= timeout_s < float("inf"):
        raise ValueError(f"timeout_s: expected seconds, at least 0, found {timeout_s!r}")
