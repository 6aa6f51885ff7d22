# SPDX-License-Identifier: Apache-2.0
"""Codecs of installed protocols, and records through them: the default protocol's where a test names none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input
from validator.config import DEFAULT_PROTOCOL
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from validator.codec.codec import Codec


def codec_for(*protocols: str) -> Codec:
    """Return the codec of some protocols."""
    return codec_of(map(RuntimePlan, protocols or (DEFAULT_PROTOCOL,)))


def encoded(topic: str | RecordKind, record: dict[str, Any], protocol: str = DEFAULT_PROTOCOL) -> bytes:
    """Return the Kafka value of an input given as JSON, by its topic or kind."""
    kind = INPUT_TOPICS[topic] if isinstance(topic, str) else topic
    return encode_input(codec_for(protocol), kind, record, protocol)


def decoded(
    topic: str | RecordKind,
    value: bytes | None,
    source: Source,
    key: bytes | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> tuple[str, Input] | DeadLetter:
    """Return what a lane of a protocol gets of a Kafka value."""
    kind = INPUT_TOPICS[topic] if isinstance(topic, str) else topic
    return decode_record(codec_for(protocol), kind, value, source, key)
