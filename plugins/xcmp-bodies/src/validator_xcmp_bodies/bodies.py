# SPDX-License-Identifier: Apache-2.0
"""The operator of bodies: the queues of one chain's recipients, or of a share of them, without clock, input or output.

The order inside a batch is part of the meaning: `apply` and `advance` first, then `offer`, then `finish` once. A body that was published
after its sender had read the event that lists it is thus never refused for being early, however a batch is cut (`job.py` says how the
source of the batches keeps that).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from validator.plugin.protocol_api import BlockNumber, ParaId
from validator_xcmp_bodies.limits import UNLISTED_TOTAL_BYTES_MAX
from validator_xcmp_bodies.outcomes import (
    BodyPart,
    EventKind,
    IngressEvent,
    Outcome,
    QueueStatus,
    RecordOffset,
    Refused,
    Settings,
    not_expected,
)
from validator_xcmp_bodies.queue import Content, Name, Queue


class Bodies:
    """Queues by recipient, and the height of the chain as far as it is known.

    ``touched`` has the recipients whose queues may have changed since the caller last cleared it.
    """

    def __init__(self, settings: Settings, height: BlockNumber = 0, queues: dict[ParaId, Queue] | None = None) -> None:
        self.settings = settings
        self.height = height
        self.queues = {} if queues is None else queues
        self.touched: set[ParaId] = set()
        self.adopted: dict[ParaId, dict[Name, Content]] = {}
        """By recipient, bodies that were held before the state was lost and whose messages are not listed again yet."""
        self.refused_below: dict[int, int] = {}
        """By partition of bodies, the offset below which every refusal was emitted before the state was lost."""
        self._out: list[Outcome] = []
        self._unlisted_bytes: int | None = None
        """Bytes of the unlisted parts of all queues, counted when they are first needed."""

    def apply(self, event: IngressEvent) -> None:
        """Apply an event of `ingress-events`; a chain's events come in their order."""
        self.advance(event.block)
        queue = self.queues.get(event.recipient)
        if queue is None:
            if event.kind is not EventKind.QUEUED:
                return
            queue = self._create(event.recipient)
        self.touched.add(event.recipient)
        with self._counting(queue):
            queue.apply(event, self._out)

    def advance(self, block: BlockNumber) -> None:
        """Note that a block is executed."""
        self.height = max(self.height, block)

    def offer(self, part: BodyPart, place: RecordOffset) -> None:
        """Take a part of a body, or refuse it."""
        queue = self.queues.get(part.recipient)
        if queue is None or (part.sent_at, part.sender) not in queue.entries:
            if not self._has_room():
                refusal = not_expected(part.sender, part.recipient, part.sent_at)
                self.say(Refused(refusal, place, part.sender, part.recipient, part.sent_at, part.root))
                return
            queue = queue or self._create(part.recipient)
        self.touched.add(part.recipient)
        with self._counting(queue):
            queue.offer(part, place, self.height, self._out)

    def say(self, outcome: Outcome) -> None:
        """Add an outcome that was decided elsewhere, such as the refusal of a record that cannot be read."""
        self._out.append(outcome)

    def finish(self) -> list[Outcome]:
        """End a batch: return everything that it has led to, in the order in which it happened."""
        for recipient in sorted(self.queues):
            queue = self.queues[recipient]
            if queue.is_due(self.height):
                self.touched.add(recipient)
                with self._counting(queue):
                    queue.finish(self.height, self._out)
            if queue.is_blank:
                self.touched.add(recipient)
                del self.queues[recipient]
        out, self._out = self._out, []
        if self.refused_below:
            out = [each for each in out if not (isinstance(each, Refused) and self._was_refused(each.place))]
        return out

    def _was_refused(self, place: RecordOffset) -> bool:
        return place.offset < self.refused_below.get(place.partition, 0)

    def statuses(self) -> Iterator[QueueStatus]:
        """Yield the status of every queue by recipient, ascending."""
        for recipient in sorted(self.queues):
            yield self.queues[recipient].status(self.height)

    def _has_room(self) -> bool:
        """Return whether any unlisted part may be kept; zero memory is the default."""
        if not self.settings.unlisted_bytes:
            return False
        return self._all_unlisted_bytes() < UNLISTED_TOTAL_BYTES_MAX

    def _all_unlisted_bytes(self) -> int:
        if self._unlisted_bytes is None:
            self._unlisted_bytes = sum(queue.unlisted_bytes for queue in self.queues.values())
        return self._unlisted_bytes

    @contextmanager
    def _counting(self, queue: Queue) -> Iterator[None]:
        """Keep the count of all unlisted bytes while a queue changes."""
        before = queue.unlisted_bytes
        yield
        if self._unlisted_bytes is not None:
            self._unlisted_bytes += queue.unlisted_bytes - before

    def _create(self, recipient: ParaId) -> Queue:
        queue = self.queues[recipient] = Queue(recipient, self.settings, adopted=self.adopted.get(recipient, {}))
        return queue
