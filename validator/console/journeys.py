# SPDX-License-Identifier: Apache-2.0
"""The fold of a lane's messages, from the topic `journeys`: which ones wait, the newest that ended, and how long each queue's wait."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from validator.codec.codec import RecordUnreadable
from validator.codec.json_form import datum_to_json
from validator.console.limits import ENDED_MAX, QUEUES_MAX, WAITING_MAX, WAITS_MAX
from validator.errors import UserError
from validator.hexadecimal import to_hex
from validator.messages import JOURNEYS, WAITING, QueueName, before_each, ended_at, quantile, queue_of, queued_at
from validator.transports.runner import plugin_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from validator.config import Config
    from validator.console.model import Json


def message_decoder(config: Config) -> Callable[[bytes], Json] | None:
    """Return a function that decodes the topic's records, None if no installed plugin declares the topic."""
    topic = plugin_topics(config).get(JOURNEYS)
    if topic is None:
        return None
    form = topic.form.format

    def decoded(value: bytes) -> Json:
        try:
            return datum_to_json(form.schema, form.decode(value), digits=to_hex)
        except RecordUnreadable as error:
            raise UserError(f"{JOURNEYS}: {error}") from None

    return decoded


class QueueEnds(NamedTuple):
    """The queues of a channel, or of a para and the relay chain, one after the other."""

    kind: str
    sender: int | None
    recipient: int | None


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message by what pages sort and filter; ``value`` is the record itself, decoded when it is shown."""

    id: str
    queue: QueueName
    number: int
    status: str
    queued_at: int | None
    ended_at: int | None
    waits_blocks: int | None
    value: bytes

    @property
    def ends(self) -> QueueEnds:
        """Which queues it belongs to."""
        return QueueEnds(*self.queue[1:4])

    @property
    def paras(self) -> tuple[int | None, int | None]:
        """The sender and the recipient."""
        return self.queue.sender, self.queue.recipient


@dataclass(slots=True)
class KeptQueue:
    """How many messages ended how, and for how many blocks the last ones had waited."""

    ended: Counter[str] = field(default_factory=Counter)
    waits: deque[int] = field(default_factory=lambda: deque(maxlen=WAITS_MAX))

    def wait(self, share: float) -> int | None:
        """Return a quantile of the waits."""
        return quantile(self.waits, share)


@dataclass(slots=True)
class KeptMessages:
    """A lane's messages. Beyond `WAITING_MAX` new ones that wait are counted, not kept; beyond `ENDED_MAX` the first that ended leaves."""

    waiting: dict[str, KeptMessage] = field(default_factory=dict)
    ended: OrderedDict[str, KeptMessage] = field(default_factory=OrderedDict)
    queues: OrderedDict[QueueEnds, KeptQueue] = field(default_factory=OrderedDict)
    unkept: int = 0

    def __bool__(self) -> bool:
        return bool(self.waiting or self.ended)

    def take(self, record: Json, value: bytes) -> None:
        """Take a record of the topic; the last one of a message comes last."""
        message = KeptMessage(
            record["id"],
            queue_of(record),
            record["number"],
            record["status"],
            queued_at(record),
            ended_at(record),
            record["waits_blocks"],
            value,
        )
        if message.status == WAITING and message.id in self.ended:
            return  # partitions were added, and the end was read first
        if message.status == WAITING:
            if len(self.waiting) < WAITING_MAX or message.id in self.waiting:
                self.waiting[message.id] = message
            else:
                self.unkept += 1
            return
        self.waiting.pop(message.id, None)
        is_new = message.id not in self.ended
        self.ended[message.id] = message
        if len(self.ended) > ENDED_MAX:
            self.ended.popitem(last=False)
        if is_new:
            queue = self.queue(message.ends)
            queue.ended[message.status] += 1
            if message.waits_blocks is not None:
                queue.waits.append(message.waits_blocks)

    def queue(self, ends: QueueEnds) -> KeptQueue:
        """Return what is kept of a channel's queues."""
        found = self.queues.get(ends)
        if found is None:
            found = self.queues[ends] = KeptQueue()
            if len(self.queues) > QUEUES_MAX:
                self.queues.popitem(last=False)
        return found

    def get(self, identity: str) -> KeptMessage | None:
        """Return a message."""
        return self.waiting.get(identity) or self.ended.get(identity)

    def before(self) -> Callable[[QueueName, int], int]:
        """Return a function that counts the messages that wait in a queue before a number."""
        return before_each((each.queue, each.number) for each in self.waiting.values())

    def holding(self, needle: bytes) -> Iterator[KeptMessage]:
        """Yield the messages whose records hold a hash, those first that wait."""
        for kept in (self.waiting, self.ended):
            yield from (each for each in kept.values() if needle in each.value)
