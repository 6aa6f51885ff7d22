# SPDX-License-Identifier: Apache-2.0
"""Dry runs on Kafka: what somebody asks, and what is answered.

An answer holds verdicts and headroom as the records that their topics carry, so that whoever reads those can read it.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from validator.codec.codec import RecordFormat, RecordUnreadable
from validator.codec.schemas import schemas
from validator.core.limits import DRY_RUN_CORRELATION_BYTES_MAX, LANE_NAME_LENGTH_MAX, RECORD_BYTES_MAX

REQUEST_SCHEMA: Final = "validator.DryRunRequest"
ANSWER_SCHEMA: Final = "validator.DryRunAnswer"


class DryRunRequest(NamedTuple):
    """A question: ``kind`` is the topic of the record, ``record`` the text of a JSON object as `validator submit` takes it."""

    lane: str
    correlation: bytes
    kind: str
    record: str


class DryRunAnswer(NamedTuple):
    """An answer to the request at ``partition`` and ``offset``.

    ``refused`` says why there is none, and then everything after it is empty. ``verdicts`` and headroom are values of Kafka records.
    """

    correlation: bytes
    partition: int
    offset: int
    lane: str
    refused: str | None = None
    batch: int | None = None
    executed_block: int | None = None
    state_root: bytes | None = None
    verdicts: tuple[bytes, ...] = ()
    complete: bool = False
    headroom: tuple[bytes, ...] = ()
    headroom_after: tuple[bytes, ...] = ()


@cache
def request_format() -> RecordFormat:
    """Return the format of requests."""
    return RecordFormat(schemas(), REQUEST_SCHEMA)


@cache
def answer_format() -> RecordFormat:
    """Return the format of answers."""
    return RecordFormat(schemas(), ANSWER_SCHEMA)


def encode_request(request: DryRunRequest) -> bytes:
    """Return a request as a Kafka value. Raises `RecordUnreadable` as `decode_request` does."""
    _check(request)
    value = request_format().encode(request._asdict())
    _check_size(value)
    return value


def decode_request(value: bytes) -> DryRunRequest:
    """Return the request that a Kafka value holds.

    Raises `RecordUnreadable`: too many bytes, another kind of record, a lane's name or correlation of a wrong length.
    """
    _check_size(value)
    request = DryRunRequest(**request_format().decode(value))
    _check(request)
    return request


def encode_answer(answer: DryRunAnswer) -> bytes:
    """Return an answer as a Kafka value."""
    return answer_format().encode(answer._asdict())


def decode_answer(value: bytes) -> DryRunAnswer:
    """Return the answer that a Kafka value holds. Raises `RecordUnreadable`."""
    datum = answer_format().decode(value)
    arrays = {name: tuple(datum[name]) for name in ("verdicts", "headroom", "headroom_after")}
    return DryRunAnswer(**{**datum, **arrays})


def _check_size(value: bytes) -> None:
    if len(value) > RECORD_BYTES_MAX:
        raise RecordUnreadable(f"expected at most {RECORD_BYTES_MAX} bytes, found {len(value)}")


def _check(request: DryRunRequest) -> None:
    if not 1 <= len(request.lane) <= LANE_NAME_LENGTH_MAX:
        raise RecordUnreadable(f"lane: expected 1 to {LANE_NAME_LENGTH_MAX} characters, found {len(request.lane)}")
    if not 1 <= len(request.correlation) <= DRY_RUN_CORRELATION_BYTES_MAX:
        expected = f"1 to {DRY_RUN_CORRELATION_BYTES_MAX} bytes"
        raise RecordUnreadable(f"correlation: expected {expected}, found {len(request.correlation)}")
