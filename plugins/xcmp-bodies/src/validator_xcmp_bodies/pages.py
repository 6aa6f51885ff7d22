# SPDX-License-Identifier: Apache-2.0
"""The operator's state as pages: one for the height, one for each queue, one for each part that waits.

A part's page has the place of its record in its name and never changes, so a batch writes only the parts that it has added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from validator.plugin.protocol_api import DecodeError, Encoding, Reader, Writer
from validator_xcmp_bodies.bodies import Bodies
from validator_xcmp_bodies.outcomes import BodyPart, RecordOffset, Settings, Watermark
from validator_xcmp_bodies.parts import Condensed
from validator_xcmp_bodies.queue import Content, Kept, ListedBody, Name, Queue, Unlisted

PAGE: Final = Encoding("page of bodies")

_HEIGHT: Final = b"h"
_RECOVERED: Final = b"r"
_QUEUE: Final = b"q"
_PART: Final = b"p"
_UNLISTED: Final = b"u"


class Pages:
    """What of a `Bodies` is stored, so that only changes are written."""

    def __init__(self, bodies: Bodies, stored: Mapping[bytes, bytes] | None = None) -> None:
        self._bodies = bodies
        self._names: dict[int, set[bytes]] = {}
        """By recipient, the names of the stored pages of parts."""
        self._queues: dict[bytes, bytes] = {}
        """The stored pages that can change: height and queues."""
        for name, page in (stored or {}).items():
            if name[:1] in (_PART, _UNLISTED):
                self._names.setdefault(int.from_bytes(name[1:5]), set()).add(name)
            else:
                self._queues[name] = page

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the pages that have changed since the last call, by name; None stands for a page that is gone."""
        bodies = self._bodies
        current = {_HEIGHT: _encode_height(bodies.height)}
        if bodies.refused_below:
            current[_RECOVERED] = encode_recovered(bodies.adopted, bodies.refused_below)
        for recipient in sorted(bodies.touched):
            queue = bodies.queues.get(recipient)
            name = _QUEUE + _u32(recipient)
            if queue is not None:
                current[name] = _encode_queue(queue)
            elif self._queues.pop(name, None) is not None:
                yield name, None
            parts = {} if queue is None else dict(_parts(queue))
            stored = self._names.get(recipient, set())
            for name in sorted(stored - parts.keys()):
                yield name, None
            for name in sorted(parts.keys() - stored):
                yield name, parts[name]()
            self._names[recipient] = set(parts)
            if not parts:
                del self._names[recipient]
        for name, page in current.items():
            if self._queues.get(name) != page:
                self._queues[name] = page
                yield name, page
        bodies.touched.clear()


def restore(settings: Settings, pages: Mapping[bytes, bytes]) -> Bodies:
    """Return the operator that the pages describe. Raises `DecodeError`."""
    bodies = Bodies(settings)
    for name in sorted(pages):  # h, p, q, u: parts need their queues, so those come first
        if name[:1] == _HEIGHT:
            bodies.height = PAGE.read(pages[name]).u32()
        elif name[:1] == _RECOVERED:
            bodies.adopted, bodies.refused_below = _decode_recovered(pages[name])
        elif name[:1] == _QUEUE:
            queue = _decode_queue(int.from_bytes(name[1:5]), settings, pages[name])
            bodies.queues[queue.recipient] = queue
    for recipient, adopted in bodies.adopted.items():
        if recipient in bodies.queues:
            bodies.queues[recipient].adopted = adopted
    for name in sorted(pages):
        if name[:1] == _PART:
            _add_part(bodies.queues[int.from_bytes(name[1:5])], pages[name])
        elif name[:1] == _UNLISTED:
            queue = bodies.queues[int.from_bytes(name[1:5])]
            queue.buffer(_decode_unlisted(queue.recipient, pages[name]))
    return bodies


def recovered_pages(adopted: Mapping[int, dict[Name, Content]], refused_below: Mapping[int, int]) -> dict[bytes, bytes]:
    """Return the first pages of an operator whose state is lost (`Bodies.adopted`, `Bodies.refused_below`)."""
    return {_RECOVERED: encode_recovered(adopted, refused_below)}


def _parts(queue: Queue) -> Iterator[tuple[bytes, Callable[[], bytes]]]:
    start = _u32(queue.recipient)
    for name, entry in queue.entries.items():
        for number, kept in entry.kept.items():
            yield _PART + start + _place_name(kept.place), lambda a=name, b=entry, c=number: _encode_part(a, b, c)  # type: ignore[misc]
    for at, each in enumerate(queue.unlisted):
        yield _UNLISTED + start + _place_name(each.place), lambda a=queue.unlisted[at]: _encode_unlisted(a)  # type: ignore[misc]


def _u32(value: int) -> bytes:
    return value.to_bytes(4)


def _place_name(place: RecordOffset) -> bytes:
    return _u32(place.partition) + place.offset.to_bytes(8)


def encode_recovered(adopted: Mapping[int, dict[Name, Content]], refused_below: Mapping[int, int]) -> bytes:
    """Return the page of what was emitted before the state was lost."""
    out = PAGE.begin()
    listed = [
        (recipient, name, adopted[recipient][name])
        for recipient in sorted(adopted)
        for name in sorted(adopted[recipient])
    ]
    out.compact(len(listed))
    for recipient, name, content in listed:
        for number in (recipient, *name):
            out.u32(number)
        _write_content(out, content)
    out.compact(len(refused_below))
    for partition, offset in sorted(refused_below.items()):
        _write_place(out, RecordOffset(partition, offset))
    return bytes(out.buffer)


def _decode_recovered(page: bytes) -> tuple[dict[int, dict[Name, Content]], dict[int, int]]:
    reader = PAGE.read(page)
    adopted: dict[int, dict[Name, Content]] = {}
    for _ in range(reader.compact()):
        recipient, name = reader.u32(), (reader.u32(), reader.u32())
        adopted.setdefault(recipient, {})[name] = _read_content(reader)
    refused_below = dict(reader.items(lambda: _read_place(reader)))
    reader.end()
    return adopted, refused_below


def _encode_height(height: int) -> bytes:
    out = PAGE.begin()
    out.u32(height)
    return bytes(out.buffer)


def _encode_queue(queue: Queue) -> bytes:
    out = PAGE.begin()
    out.u32(queue.watermark.block)
    out.compact(len(queue.watermark.acked))
    for sender in queue.watermark.acked:
        out.u32(sender)
    out.u8(queue.alarm)
    out.compact(len(queue.order))
    for name in queue.order:
        entry = queue.entries[name]
        out.u32(name[0])
        out.u32(name[1])
        out.hash(entry.root)
        for number in (entry.size, entry.due, entry.requests):
            out.u64(number)
        out.option(entry.held, lambda content: _write_content(out, content))
    return bytes(out.buffer)


def _write_content(out: Writer, content: Content) -> None:
    out.u32(content.payloads)
    out.compact(len(content.places))
    for place in content.places:
        _write_place(out, place)


def _read_content(reader: Reader) -> Content:
    return Content(reader.u32(), tuple(reader.items(lambda: _read_place(reader))))


def _decode_queue(recipient: int, settings: Settings, page: bytes) -> Queue:
    reader = PAGE.read(page)
    watermark = Watermark(reader.u32(), tuple(reader.items(reader.u32)))
    queue = Queue(recipient, settings, watermark=watermark, alarm=reader.boolean())
    for _ in range(reader.compact()):
        name = reader.u32(), reader.u32()
        entry = ListedBody(reader.hash(), reader.u64(), reader.u64(), reader.u64())
        entry.held = reader.option(lambda: _read_content(reader))
        queue.add(name, entry)
    reader.end()
    return queue


def _encode_part(name: tuple[int, int], entry: ListedBody, number: int) -> bytes:
    out = PAGE.begin()
    place, content = entry.kept[number]
    for value in (*name, number, entry.parts):
        out.u32(value)
    _write_place(out, place)
    _write_condensed(out, content)
    return bytes(out.buffer)


def _add_part(queue: Queue, page: bytes) -> None:
    reader = PAGE.read(page)
    name, number, parts = (reader.u32(), reader.u32()), reader.u32(), reader.u32()
    entry = queue.entries.get(name)
    if entry is None:
        raise DecodeError(f"a part of {name} is stored, but not listed")
    entry.parts = parts
    entry.kept[number] = Kept(_read_place(reader), _read_condensed(reader))
    reader.end()


def _encode_unlisted(unlisted: Unlisted) -> bytes:
    part, place, since = unlisted
    out = PAGE.begin()
    for number in (part.sender, part.sent_at, part.part, part.parts, since):
        out.u32(number)
    out.hash(part.root)
    out.u64(part.size)
    _write_place(out, place)
    _write_condensed(out, part.content)
    return bytes(out.buffer)


def _decode_unlisted(recipient: int, page: bytes) -> Unlisted:
    reader = PAGE.read(page)
    sender, sent_at, part, parts, since = (reader.u32() for _ in range(5))
    root, size, place = reader.hash(), reader.u64(), _read_place(reader)
    content = _read_condensed(reader)
    reader.end()
    return Unlisted(BodyPart(sender, recipient, sent_at, root, size, part, parts, content), place, since)


def _write_place(out: Writer, place: RecordOffset) -> None:
    out.u32(place.partition)
    out.u64(place.offset)


def _read_place(reader: Reader) -> RecordOffset:
    return RecordOffset(reader.u32(), reader.u64())


def _write_condensed(out: Writer, content: Condensed) -> None:
    out.u64(content.size)
    out.u8(content.continued | content.continues << 1)
    out.option(content.head, out.bytes)
    out.option(content.tail, out.bytes)
    out.compact(len(content.leaves))
    for leaf in content.leaves:
        out.hash(leaf)


def _read_condensed(reader: Reader) -> Condensed:
    size, flags = reader.u64(), reader.u8()
    head, tail = reader.option(reader.bytes), reader.option(reader.bytes)
    leaves = tuple(reader.items(reader.hash))
    return Condensed(size, head, leaves, tail, bool(flags & 1), bool(flags & 2))
