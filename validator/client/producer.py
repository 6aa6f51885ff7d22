# SPDX-License-Identifier: Apache-2.0
"""Sends a lane's blocks, and keeps the counts of the block barrier: a block's own record is sent last, and says what belongs to it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from validator.codec.json_form import encode_input
from validator.errors import UserError
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from validator.client.backend import Backend
    from validator.codec.codec import Codec

_COUNTS = {"candidates": "candidates", "channel-requests": "requests", "downward-messages": "downward"}
"""By topic, the field of a block's record that counts its records."""


class Producer:
    """Sends the blocks of one lane, one after the other."""

    def __init__(self, backend: Backend, codec: Codec, protocol: str, lane: str, after: int | None = None) -> None:
        self.lane = lane
        self._backend, self._codec, self._protocol = backend, codec, protocol
        self._last = after

    def block(self, number: int, *, parent: int | None = None, block_hash: bytes | str | None = None) -> BlockOnItsWay:
        """Begin a block. ``parent`` is by default the number before it.

        Leave the block's ``with`` statement, or call `BlockOnItsWay.end`, to send it; an exception inside drops it. If Kafka does not take
        it, `UserError` is raised, and `BlockOnItsWay.end` sends it again. Raises `UserError` unless blocks ascend, and for one up to the
        block that the producer begins after.
        """
        if self._last is not None and number <= self._last:
            raise UserError(
                f"block: expected a block after {self._last}, which is sent or executed already, found {number}"
            )
        place: dict[str, Any] = {
            "lane": self.lane,
            "block": number,
            "parent_number": parent,
            "block_hash": _hex(block_hash),
        }
        return BlockOnItsWay(self, place)

    def flush(self) -> None:
        """Wait until Kafka has everything that was sent. Raises `UserError`."""
        self._backend.flush()

    def encode(self, topic: str, record: Mapping[str, Any]) -> bytes:
        """Return the Kafka value of a record in JSON form. Raises `UserError`."""
        return encode_input(self._codec, INPUT_TOPICS[topic], dict(record), self._protocol)

    def send(self, number: int, values: Sequence[tuple[str, bytes]]) -> None:
        """Send the encoded records of a block and wait for their acknowledgement. Raises `UserError`."""
        for topic, value in values:
            self._backend.send(topic, self.lane.encode(), value)
        self._backend.flush()
        self._last = number


class BlockOnItsWay:
    """Collects the records of a block. Nothing is sent before the block ends, so a wrong record spoils no block.

    Records take the form of `validator submit` without ``lane``, ``block`` and ``index``; bytes may be given as bytes or hex. A method that
    adds a record returns its index, and raises `UserError` for a record that is not of its topic.
    """

    def __init__(self, producer: Producer, place: dict[str, Any]) -> None:
        self._producer, self._place = producer, place
        self._values: list[tuple[str, bytes]] = []
        self._counts = dict.fromkeys(_COUNTS.values(), 0)
        self._included: list[dict[str, Any]] = []
        self._timed_out: list[dict[str, Any]] = []
        self._session_change: dict[str, Any] | None = None
        self._complete: list[tuple[str, bytes]] | None = None
        """All records, once `end` was called: every attempt to send them sends the same bytes."""
        self._sending = Lock()
        self._is_sent = False

    @property
    def number(self) -> int:
        """The block's number."""
        number: int = self._place["block"]
        return number

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.end()

    def candidate(self, para_id: int, **fields: Any) -> int:
        """Add a candidate of a para, such as ``candidate(2000, hrmp_watermark=16, upward_messages=[b"..."])``."""
        return self._add("candidates", {"para_id": para_id, **fields})

    def request(self, kind: str, **arguments: Any) -> int:
        """Add a channel request, such as ``request("accept_open_channel", origin=2004, sender=2000)``."""
        return self._add("channel-requests", {"kind": kind, **arguments})

    def downward(self, para_id: int, msg: bytes | str) -> int:
        """Add a downward message to a para."""
        return self._add("downward-messages", {"para_id": para_id, "msg": msg})

    def include(self, para_id: int, backed_at: int | None = None) -> None:
        """Say that a pending candidate of a para became available: its oldest, or the one accepted in ``backed_at``."""
        self._check_open()
        self._included.append({"para_id": para_id, "backed_at": backed_at})

    def time_out(self, para_id: int, backed_at: int | None = None) -> None:
        """Say that a pending candidate of a para timed out."""
        self._check_open()
        self._timed_out.append({"para_id": para_id, "backed_at": backed_at})

    def change_session(self, **change: Any) -> None:
        """End the session with this block; the arguments are the members of a `session_change`, which may all be left out."""
        self._check_open()
        self._session_change = change

    def end(self) -> None:
        """Send the block, its own record last, and wait until Kafka has it. Raises `UserError`, also if it is sent already.

        After another `UserError` call it again once Kafka is back: the lane recognises records that Kafka has already, since they are the
        same. A call while another thread still sends the block waits for that.
        """
        with self._sending:
            if self._is_sent:
                raise UserError(f"block {self.number} is sent already")
            if self._complete is None:
                self._complete = [*self._values, ("blocks", self._encoded())]
            self._producer.send(self.number, self._complete)
            self._is_sent = True

    def _encoded(self) -> bytes:
        """Return the block's own record."""
        record = {
            **self._place,
            **self._counts,
            "included": self._included,
            "timed_out": self._timed_out,
            "session_change": None if self._session_change is None else plain(self._session_change),
        }
        return self._producer.encode("blocks", record)

    def _check_open(self) -> None:
        if self._complete is not None:
            how = "sent already" if self._is_sent else "complete, and may be on Kafka in part: `end` sends it again"
            raise UserError(f"block {self.number} is {how}")

    def _add(self, topic: str, fields: dict[str, Any]) -> int:
        self._check_open()
        count = _COUNTS[topic]
        index = self._counts[count]
        place = {"lane": self._place["lane"], "block": self.number, "index": index}
        self._values.append((topic, self._producer.encode(topic, {**plain(fields), **place})))
        self._counts[count] += 1
        return index


def _hex(value: bytes | str | None) -> str | None:
    return value.hex() if isinstance(value, bytes) else value


def plain(value: Any) -> Any:
    """Return a value in JSON form: bytes as hex, tuples as lists."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
