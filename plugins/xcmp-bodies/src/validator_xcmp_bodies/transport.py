# SPDX-License-Identifier: Apache-2.0
"""The transport `xcmp-bodies`: connects a collator's folders to the job of the same name.

A collator is a program in another language. Files need no client library, no port and no separate authentication, and a rename either has
happened or has not, which exactly once needs. HTTP would need requests, retries and a place for positions on both sides. Another network
replaces `Outbox` and `Inbox` and keeps the rest.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Condition
from typing import Any, ClassVar, Final

from validator.plugin.api import Manifest, OutputReader, OutputRecord, Transport, TransportContext, hookimpl
from validator.plugin.protocol_api import U32_MAX
from validator_xcmp_bodies import __version__, records
from validator_xcmp_bodies.folders import Inbox, Outbox
from validator_xcmp_bodies.follow import Delivery, Follower, message_document
from validator_xcmp_bodies.job import JOB
from validator_xcmp_bodies.limits import INBOX_FILES, INBOX_FILES_MAX, OUTBOX_FILES_MAX
from validator_xcmp_bodies.outcomes import RecordOffset, Wanted
from validator_xcmp_bodies.parts import BodyError
from validator_xcmp_bodies.records import gone, read_body
from validator_xcmp_bodies.sender import Name, Sender

LOG: Final = logging.getLogger("validator_xcmp_bodies")
TOPICS: Final = (records.INGRESS, records.HELD, records.WANTED, records.FLOW)

POLL_S: Final = 0.5
"""Seconds between two looks at a folder while nothing arrives."""
ROUND_RECORDS_MAX: Final = 1_000
"""Records that are read before folders are looked at again."""
FETCH_S_MAX: Final = 60.0
"""Seconds that reading a part may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """The folders of one para; without a folder the transport does not send, or does not deliver."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    outbox: str | None = None
    inbox: str | None = None
    replica: bool = False
    """Whether the outbox has copies of bodies whose sender may fail: only requests for replicas are answered from it."""

    def __post_init__(self) -> None:
        if self.outbox is None and self.inbox is None:
            raise ValueError("expected an outbox, an inbox or both, found neither")


@dataclass(frozen=True)
class Configuration:
    """The table `[transports.xcmp-bodies]`: folders by ``chain/para``."""

    paras: dict[str, Folders] = field(default_factory=dict)
    inbox_files_max: int = INBOX_FILES
    """Files in an inbox beyond which nothing more is delivered until some are taken away."""

    def __post_init__(self) -> None:
        for name in self.paras:
            _split(name)
        if not 1 <= self.inbox_files_max <= INBOX_FILES_MAX:
            raise ValueError(f"inbox_files_max: expected 1 to {INBOX_FILES_MAX}, found {self.inbox_files_max}")


def _split(name: str) -> tuple[str, int]:
    lane, _, para = name.rpartition("/")
    if not (lane and para.isascii() and para.isdecimal() and int(para) <= U32_MAX and str(int(para)) == para):
        raise ValueError(f"paras: expected names CHAIN/PARA, found {name[:80]!r}")
    return lane, int(para)


@hookimpl
def validator_manifest() -> Manifest:
    """Return the identity of this plugin."""
    return Manifest(JOB, __version__, (2, 0), Configuration)


@hookimpl
def validator_transports(config: Configuration | None) -> Iterator[Transport]:
    """Yield a transport for each para: its name is the chain and the para with a hyphen in between."""
    for name in sorted(config.paras if config is not None else ()):
        yield Transport(name.replace("/", "-"), partial(run, name), (), (JOB,), (_split(name)[0],))


def run(name: str, context: TransportContext) -> None:
    """Serve the folders of one para until the context asks to stop; the log goes to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s xcmp-bodies: %(message)s"))
    LOG.addHandler(handler)
    level = LOG.level
    LOG.setLevel(logging.INFO)
    try:
        with ExitStack() as stack:
            service = Service(context, name, stack)
            while not context.stopping:
                service.step()
    finally:
        LOG.setLevel(level)
        LOG.removeHandler(handler)


class Service:
    """Serves one para. ``stack`` closes its folders. Raises `FolderError`."""

    def __init__(self, context: TransportContext, name: str, stack: ExitStack) -> None:
        config: Configuration = context.config
        folders = config.paras[name]
        self._context = context
        self._lane, self._para = _split(name)
        self._sending: Sending | None = None
        self._delivering: Delivering | None = None
        if folders.outbox is not None:
            outbox = Outbox(Path(folders.outbox), OUTBOX_FILES_MAX)
            stack.callback(outbox.close)
            self._sending = Sending(context, self._lane, self._para, outbox, replica=folders.replica)
        if folders.inbox is not None:
            inbox = Inbox(Path(folders.inbox), self._lane, self._para, config.inbox_files_max)
            stack.callback(inbox.close)
            self._delivering = Delivering(context, self._lane, inbox)
        self._reader = context.reader(TOPICS)
        self._is_live = False
        """Whether everything that was there at the start has been read: before that, much of it is out of date."""

    def step(self) -> None:
        """Read what has arrived, at most a round of it; then send and deliver what has become due."""
        complete = self._read()
        self._is_live = self._is_live or complete
        if self._sending is not None and self._is_live:
            self._sending.send()
        if self._delivering is not None:
            self._delivering.deliver(complete=complete)

    def _read(self) -> bool:
        """Return whether everything has been read."""
        for _ in range(ROUND_RECORDS_MAX):
            record = self._reader.receive(POLL_S)
            if record is None:
                return self._reader.positions() == self._reader.ends()
            self._take(record)
        return False

    def _take(self, record: OutputRecord) -> None:
        sending, delivering = self._sending, self._delivering
        match record.topic:
            case records.INGRESS:
                lane, event = records.decode_event(record.value)
                if lane != self._lane or event is None:
                    return
                if sending is not None and event.sender == self._para:
                    sending.sender.apply(event)
                if delivering is not None and event.recipient == self._para:
                    delivering.follower.apply(event)
            case records.HELD:
                lane, held = records.decode_held(record.value)
                if lane != self._lane:
                    return
                if sending is not None and held.sender == self._para:
                    sending.sender.note_held(held.recipient, held.sent_at)
                if delivering is not None and held.recipient == self._para:
                    delivering.follower.hold(held)
            case records.WANTED:
                if sending is not None and record.key == records.key_of(self._lane, self._para):
                    wanted = records.decode_wanted(record.value)
                    sending.wanted[wanted.recipient, wanted.sent_at] = wanted
            case records.FLOW:
                flow = records.decode(records.FLOW, record.value)
                if sending is not None and (flow["lane"], flow["sender"]) == (self._lane, self._para):
                    sending.credits[flow["recipient"]] = flow


class Sending:
    """A sender's half: its bodies go out once they are listed, and again when they are requested."""

    def __init__(self, context: TransportContext, lane: str, para: int, outbox: Outbox, *, replica: bool) -> None:
        self._context, self._outbox = context, outbox
        self.sender = Sender(lane, para, outbox, replica=replica)
        self.wanted: dict[Name, Wanted] = {}
        """The last request for each message that has not been answered yet."""
        self.credits: dict[int, Mapping[str, Any]] = {}
        self._free = Condition()
        self._failed: deque[str] = deque(maxlen=1)
        self._refusals: dict[str, str] = {}
        self._is_crowded = False

    def send(self) -> None:
        """Send the bodies that are due, and write what is known of the para's messages. Raises ``RuntimeError`` if Kafka refuses a part."""
        self._outbox.look()
        for name, refusal in self._outbox.refusals.items():
            if self._refusals.get(name) != refusal:
                LOG.warning("%s: %s", _visible(name), _visible(refusal))
        self._refusals = self._outbox.refusals
        if self._outbox.uncounted and not self._is_crowded:
            LOG.warning("the outbox has more than %d files: the last ones by name do not count", OUTBOX_FILES_MAX)
        self._is_crowded = self._outbox.uncounted > 0
        parts = 0
        for part in self.sender.due():
            self._enqueue(part.topic, part.key, part.value)
            parts += 1
        for wanted in self.wanted.values():
            for part in self.sender.answer(wanted):
                self._enqueue(part.topic, part.key, part.value)
                parts += 1
        self.wanted.clear()
        if parts:
            LOG.info("%d parts sent", parts)
        if self._failed:
            raise RuntimeError(self._failed[0])
        self._outbox.show(self._state())

    def _enqueue(self, topic: str, key: bytes, value: bytes) -> None:
        while not self._context.enqueue(topic, key, value, self._done):
            with self._free:
                self._free.wait(POLL_S)
            if self._context.stopping:
                return

    def _done(self, reason: str | None) -> None:
        with self._free:
            if reason is not None:
                self._failed.append(reason)
            self._free.notify_all()

    def _state(self) -> dict[str, Any]:
        messages = [
            {
                "recipient": each.recipient,
                "sent_at": each.sent_at,
                "root": f"0x{each.content[0].hex()}",
                "size": each.content[1],
                "held": each.is_held,
                "file": self._outbox.name_of(each.content),
            }
            for each in self.sender.messages()
        ]
        credit = ("recipient", "capacity", "unread", "watermark")
        given = [{name: flow[name] for name in credit} for _, flow in sorted(self.credits.items())]
        return {"messages": messages, "credits": given, "refused": self._refusals}


def _visible(text: str) -> str:
    """Return a name or a text of the folder's owner with escapes, so that it stays one line of the log and moves no cursor."""
    return text.encode("unicode_escape").decode()


class Delivering:
    """A recipient's half: its messages become files, in the fair order, exactly once."""

    def __init__(self, context: TransportContext, lane: str, inbox: Inbox) -> None:
        self._context, self._lane, self._inbox = context, lane, inbox
        self.follower = Follower(inbox.position)
        self._reader: OutputReader | None = None
        self._is_full = False

    def deliver(self, *, complete: bool) -> None:
        """Deliver what is due, as long as the inbox takes it. Raises `BodyError`: a body is gone, or is not the listed one."""
        while not self._context.stopping:
            if self._inbox.is_full:
                if not self._is_full:
                    LOG.warning("the inbox is full: nothing is delivered until files are taken away")
                self._is_full = True
                return
            self._is_full = False
            delivery = next(self.follower.deliveries(complete=complete), None)
            if delivery is None:
                return
            try:
                self._put(delivery)
            except _Stopped:
                return

    def _put(self, delivery: Delivery) -> None:
        payloads = read_body(self._lane, delivery.held, self._value)
        self._inbox.put(delivery.position, message_document(self._lane, delivery, payloads))
        LOG.info("message %d/%d delivered", *delivery.position)

    def _value(self, place: RecordOffset) -> bytes:
        reader = self._reader = self._reader or self._context.reader([records.BODIES])
        at = records.BODIES, place.partition
        if reader.positions().get(at) != place.offset:
            reader.seek(reader.ends() | {at: place.offset})
        record = reader.receive(FETCH_S_MAX)
        while record is not None and (record.partition != place.partition or record.offset < place.offset):
            record = reader.receive(FETCH_S_MAX)
        if record is None and self._context.stopping:
            raise _Stopped
        if record is None or record.offset != place.offset:
            raise BodyError(gone(place))
        return record.value


class _Stopped(Exception):
    """The transport was asked to stop while it waited for a part."""
