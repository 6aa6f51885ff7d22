# SPDX-License-Identifier: Apache-2.0
"""What a worker and the process of a lane say to each other.

The worker believes nothing of it: what the process sends is taken apart here without executing anything, and holds for the process's own
lane alone. In the other direction go Python's own forms of values, since the process has no reason to mistrust the worker.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final

from validator.codec.encode import BlockOutput, OutputRecord, avro_text
from validator.codec.schemas import HEADER_SIZE
from validator.core.scale import DecodeError, Reader, Writer, decoding
from validator.core.types import maker
from validator.topics import DEAD_LETTER_REPLAYS, MARKERS, METRICS, OUTPUT_TOPICS

FRAME_BYTES_MAX: Final = 2**31 - 1
"""Bytes of a frame of the worker: an answer may be the whole state of a lane."""

SAID_BYTES_MAX: Final = 1024**3
"""Bytes of a frame of a lane's process. The largest are an entry of the journal, which has the inputs of a batch (at most 512 MiB), and the
output of a block."""

SHORT_BYTES_MAX: Final = 1024**2
"""Bytes of a frame of a lane's process that has no records, no pages and no inputs."""

TEXT_BYTES_MAX: Final = 64 * 1024
"""Bytes of a text that a lane's process sends."""

_TAKEN_BYTES: Final = 1024**2
"""Bytes of a frame that may have memory before they have arrived."""

OUTPUT_BYTES: Final = 256 * 1024
"""Bytes of record values after which what was executed is sent on."""

_HEADER: Final = struct.Struct("<IB")
_TOPICS: Final = (*(topic for topic in OUTPUT_TOPICS if topic not in (MARKERS, DEAD_LETTER_REPLAYS)), METRICS)
"""Topics of what a lane emits: the marker is the worker's."""
_TOPIC_NUMBERS: Final = {topic: number for number, topic in enumerate(_TOPICS)}
_NO_BLOCK: Final = -1


class Say(IntEnum):
    """What a frame is."""

    START = 0
    BATCH = 1
    CHUNK = 2
    CHUNKS_END = 3
    AGAIN = 4
    """A block to execute for the audit."""
    ANSWER = 5
    REFUSAL = 6
    WRITTEN = 7
    """The batch is committed."""

    OUTPUT = 20
    AUDIT = 21
    DONE = 22
    FAILED = 23
    BUG = 24
    RECOVERED = 25
    GENESIS = 26
    HELD = 27
    CONFIRM = 28
    LOAD_SLOTS = 29
    LOAD_JOURNAL = 30
    SAVE_HEAD = 31
    SAVE_SLOT = 32
    REMOVE_SLOT = 33
    APPEND_JOURNAL = 34
    CLEAR_JOURNAL = 35
    LOADED = 36
    """The plugins are imported."""
    REFUSED = 37
    """They are not those of the driver."""
    REPEATED = 38
    """The copy that has executed a block for the audit has ended."""


_LONG: Final = frozenset({Say.OUTPUT, Say.AUDIT, Say.SAVE_HEAD, Say.SAVE_SLOT, Say.APPEND_JOURNAL})


def said_bytes_max(say: Say) -> int:
    """Return how many bytes a frame of a lane's process may have."""
    return SAID_BYTES_MAX if say in _LONG else SHORT_BYTES_MAX


class Gone(Exception):
    """The other end has closed the connection."""


class Nonsense(Exception):
    """The process has sent what no process of a lane sends."""


class Wire:
    """Frames over a socket.

    ``tick`` is called about once per ``tick_s`` seconds, whatever arrives meanwhile, but only while something is sent or awaited; it may
    raise. ``bytes_max`` says how many bytes a frame from the other
    end may have.
    """

    def __init__(
        self,
        sock: socket.socket,
        tick: Callable[[], None] | None = None,
        tick_s: float = 1.0,
        bytes_max: Callable[[Say], int] = lambda _: FRAME_BYTES_MAX,
    ) -> None:
        self._sock = sock
        self._tick = tick
        self._tick_s = tick_s
        self._next_tick_s = time.monotonic() + tick_s
        self._bytes_max = bytes_max
        self.begun = 0
        """Frames that have begun to arrive."""
        self.arrived = 0
        """Those of which all has."""
        sock.settimeout(None if tick is None else tick_s)

    def send(self, say: Say, *parts: bytes) -> None:
        """Send a frame. Raises `Gone`."""
        size = sum(map(len, parts))
        if size > FRAME_BYTES_MAX:
            raise MemoryError(f"a frame of {size} bytes")
        rest = memoryview(b"".join((_HEADER.pack(size, say), *parts)))
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except TimeoutError:
                pass
            except OSError as error:
                raise Gone from error
            self._tick_in_time()

    def receive(self) -> tuple[Say, bytearray]:
        """Return the next frame. Raises `Gone`, `Nonsense`."""
        size, number = _HEADER.unpack(self._take(_HEADER.size))
        try:
            say = Say(number)
        except ValueError:
            raise Nonsense(f"frame {number}") from None
        if size > self._bytes_max(say):
            raise Nonsense(f"a frame {say.name} of {size} bytes")
        data = self._take(size)
        self.arrived = self.begun
        return say, data

    def close(self) -> None:
        self._sock.close()

    def _take(self, size: int) -> bytearray:
        """Return that many bytes. Who says that there will be many has no memory of them before they come."""
        if size <= _TAKEN_BYTES:
            return self._take_at_once(size)
        taken = bytearray()
        while len(taken) < size:
            taken += self._take_at_once(min(size - len(taken), _TAKEN_BYTES))
        return taken

    def _take_at_once(self, size: int) -> bytearray:
        taken = bytearray(size)
        rest = memoryview(taken)
        while rest:
            try:
                read = self._sock.recv_into(rest)
            except TimeoutError:
                self._tick_in_time()
                continue
            except OSError as error:
                raise Gone from error
            if not read:
                raise Gone
            rest = rest[read:]
            if self.begun == self.arrived:
                self.begun += 1
            self._tick_in_time()
        return taken

    def _tick_in_time(self) -> None:
        """Tick if it is time to. Some processes send just enough that nobody waits for them."""
        if self._tick is not None and (now := time.monotonic()) >= self._next_tick_s:
            self._next_tick_s = now + self._tick_s
            self._tick()


# --- outputs: the sizes of all parts first, so that one call of C takes them apart ---

_record = maker(OutputRecord)


def outputs_to_bytes(outputs: Sequence[BlockOutput]) -> bytes:
    sizes: list[int] = []
    parts: list[bytes] = []
    blocks: list[int] = []
    for block, records in outputs:
        blocks += (_NO_BLOCK if block is None else block, len(records))
        for topic, key, value, headers in records:
            described = _headers_to_bytes(headers) if headers else b""
            sizes += (_TOPIC_NUMBERS[topic], len(key), len(value), len(described))
            parts += (key, value, described)
    head = struct.pack(f"<II{len(blocks)}q{len(sizes)}I", len(blocks), len(sizes), *blocks, *sizes)
    return b"".join((head, *parts))


def outputs_of_bytes(data: bytearray, lane: str) -> list[BlockOutput]:
    """Return what a lane emits. Raises `Nonsense`, also for a record that is not of this lane."""
    view = memoryview(data)
    key_of_lane, own = lane.encode(), avro_text(lane)
    of_own = key_of_lane + b"/"
    try:
        blocks_count, sizes_count = struct.unpack_from("<II", view)
        numbers = struct.unpack_from(f"<{blocks_count}q{sizes_count}I", view, 8)
        at = 8 + 8 * blocks_count + 4 * sizes_count
        outputs, taken = [], blocks_count
        for number in range(0, blocks_count, 2):
            block, count = numbers[number : number + 2]
            if block < _NO_BLOCK or count < 0:
                raise Nonsense(f"output: {count} records of block {block}")
            records = []
            for _ in range(count):
                topic, key_size, value_size, headers_size = numbers[taken : taken + 4]
                taken += 4
                value_at = at + key_size
                headers_at = value_at + value_size
                key, value = bytes(view[at:value_at]), bytes(view[value_at:headers_at])
                at = headers_at + headers_size
                name = _TOPICS[topic]
                if key != key_of_lane and not key.startswith(of_own):
                    raise Nonsense(f"a record on {name} with the key {key[:80]!r}")
                if name != METRICS and not value.startswith(own, HEADER_SIZE):
                    raise Nonsense(f"a record on {name} that does not name the lane")
                headers = _headers_of_bytes(bytes(view[headers_at:at])) if headers_size else ()
                records.append(_record((name, key, value, headers)))
            outputs.append(BlockOutput(None if block == _NO_BLOCK else block, records))
    except (struct.error, IndexError, ValueError, DecodeError) as error:
        raise Nonsense(f"output: {error}") from error
    if at != len(data) or taken != len(numbers):
        raise Nonsense("output: bytes are missing or left over")
    return outputs


def _headers_to_bytes(headers: Iterable[tuple[str, bytes]]) -> bytes:
    out = Writer()
    for name, value in headers:
        out.bytes(name.encode())
        out.bytes(value)
    return bytes(out.buffer)


def _headers_of_bytes(data: bytes) -> tuple[tuple[str, bytes], ...]:
    reader = Reader(data)
    found = []
    while reader.position < len(data):
        found.append((reader.bytes().decode(), reader.bytes()))
    return tuple(found)


# --- the few other values that the worker takes apart ---


def place_to_bytes(topic: str, partition: int, *numbers: int) -> bytes:
    """Return a topic, a partition and numbers as bytes."""
    out = Writer()
    out.bytes(topic.encode())
    out.u32(partition)
    for number in numbers:
        out.u64(number)
    return bytes(out.buffer)


def place_of_bytes(reader: Reader, count: int) -> tuple[str, int, list[int]]:
    """Return a topic, a partition and ``count`` numbers. Raises `core.scale.DecodeError`."""
    with decoding("a place"):
        return reader.bytes().decode(), reader.u32(), [reader.u64() for _ in range(count)]


def reading(data: bytearray) -> Reader:
    return Reader(bytes(data))


def text_of(data: bytearray) -> str:
    return data.decode("utf-8", "replace")
