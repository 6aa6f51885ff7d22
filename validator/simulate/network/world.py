# SPDX-License-Identifier: Apache-2.0
"""The simulated network, relay block by relay block.

In each block recipients acknowledge first: what was sent in earlier blocks, is held, and fits into the budget. Then senders send; an
acknowledgement of the same block has already freed its place in the channel. So the least lag is one block. Bodies start when the block
that lists them exists, so that their arrival is known as soon as they are sent, and a block costs only the messages that move in it.

This is a model of a network. It shares no code with the rules of the protocol, which judge each acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from validator.simulate import Draws
from validator.simulate.network.limits import BLOCK_BYTES_MAX, BLOCK_MS, SAMPLES_MAX
from validator.simulate.network.links import Links
from validator.simulate.network.metrics import Tally
from validator.simulate.network.policies import IngressQueue, Message, make_queue
from validator.simulate.network.settings import NetworkSettings
from validator.simulate.network.traffic import Calendar, channels_of, size_draws


@dataclass(slots=True)
class Recipient:
    """A para as a recipient: its queue, how many messages are unread, and where its counts go."""

    queue: IngressQueue
    channels: list[int]
    tally: Tally
    greedy: bool
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """The network after a block: unread messages and the age of the oldest one, over all recipients."""

    block: int
    unread_messages: int
    oldest_unread_blocks: int


class World:
    """One network. `run` plays it once; all counts are public afterwards, those of a channel by its position in `channels`."""

    def __init__(self, settings: NetworkSettings) -> None:
        self.settings = settings
        draws = Draws(settings.seed)
        self.channels = channels_of(settings, draws)
        self.tallies = {False: Tally(), True: Tally()}  # by whether the recipient is greedy
        self.recipients = self._recipients(draws)
        self.unread = [0] * len(self.channels)
        self.acknowledged = [0] * len(self.channels)
        self.acknowledged_bytes = [0] * len(self.channels)
        self.lag_blocks = [0] * len(self.channels)  # sum
        self.samples: list[Sample] = []
        self._calendar = Calendar(len(self.channels), settings, draws)
        self._links = Links(settings, draws)
        self._draw_size = size_draws(settings, draws)
        self._waiting: dict[int, Recipient] = {}  # recipients with unread messages, by para

    def run(self, progress: Callable[[int], None] = lambda _: None) -> None:
        """Play all blocks; ``progress`` is called with the number of each block that is complete."""
        every = -(-self.settings.blocks // SAMPLES_MAX)
        for block in range(1, self.settings.blocks + 1):
            self._acknowledge(block)
            self._send(block)
            if block % every == 0:
                unread = sum(recipient.unread for recipient in self._waiting.values())
                self.samples.append(Sample(block, unread, self.oldest_unread_blocks(block, self._waiting.values())))
            progress(block)

    @staticmethod
    def oldest_unread_blocks(block: int, recipients: Iterable[Recipient]) -> int:
        """Return the age of the oldest message that these recipients have not acknowledged; 0 also if all are acknowledged."""
        ages = (block - oldest for recipient in recipients if (oldest := recipient.queue.oldest()) is not None)
        return max(ages, default=0)

    def _recipients(self, draws: Draws) -> dict[int, Recipient]:
        paras = range(self.settings.recipients)
        greedy = set(draws.sample(paras, round(self.settings.greedy_share * len(paras))))
        inbound: dict[int, list[int]] = {para: [] for para in paras}
        for channel, (_, para) in enumerate(self.channels):
            inbound[para].append(channel)
        return {
            para: Recipient(
                make_queue(self.settings, channels, greedy=para in greedy),
                channels,
                self.tallies[para in greedy],
                para in greedy,
            )
            for para, channels in inbound.items()
        }

    def _acknowledge(self, block: int) -> None:
        """Let every recipient whose turn it is build; recipients take turns, so that not all of them build on the same block."""
        every = self.settings.build_every_blocks
        budget_bytes = self.settings.ingest_bytes * every
        for para, recipient in list(self._waiting.items()):
            if (block + para) % every == 0:
                self._build(block, recipient, budget_bytes)
                if not recipient.unread:
                    del self._waiting[para]
            recipient.tally.unread_blocks += recipient.unread

    def _build(self, block: int, recipient: Recipient, budget_bytes: int) -> None:
        tally = recipient.tally
        tally.builds += 1
        taken = recipient.queue.take(block, budget_bytes)
        if not taken:
            tally.stalled += 1
            return
        lags = tally.lags
        for sent_at, channel, size, _, _ in taken:
            lag = block - sent_at
            lags[lag] += 1
            self.unread[channel] -= 1
            self.acknowledged[channel] += 1
            self.acknowledged_bytes[channel] += size
            self.lag_blocks[channel] += lag
            tally.acknowledged_bytes += size
        tally.acknowledged += len(taken)
        recipient.unread -= len(taken)

    def _send(self, block: int) -> None:
        """Let every sender whose turn it is send, in the order of senders; what a limit refuses is gone."""
        capacity, unread, draw_size = self.settings.capacity_messages, self.unread, self._draw_size
        current, sent_bytes = -1, 0  # the sender, and what it has sent in this block
        for channel in self._calendar.due(block):
            sender, para = self.channels[channel]
            if sender != current:
                current, sent_bytes = sender, 0
            recipient = self.recipients[para]
            tally = recipient.tally
            size = draw_size()
            tally.offered += 1
            tally.offered_bytes += size
            if unread[channel] >= capacity:
                tally.refused_full += 1
            elif sent_bytes + size > BLOCK_BYTES_MAX:
                tally.refused_size += 1
            else:
                sent_bytes += size
                unread[channel] += 1
                self._queue(block, channel, size, recipient)
                self._waiting[para] = recipient

    def _queue(self, block: int, channel: int, size: int, recipient: Recipient) -> None:
        """Put a message into its recipient's queue, with the first block that can acknowledge it."""
        after_ms, requests = self._links.deliver()
        ready_at = block + (-(-after_ms // BLOCK_MS) or 1)
        recipient.queue.push(Message(block, channel, size, ready_at, block * BLOCK_MS + after_ms))
        recipient.unread += 1
        tally = recipient.tally
        tally.queued += 1
        tally.queued_bytes += size
        tally.requests += requests
        tally.transferred_bytes += size * (1 + requests)
        tally.deliveries[after_ms] += 1
        if recipient.unread > tally.unread_most:
            tally.unread_most = recipient.unread
