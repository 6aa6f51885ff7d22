# SPDX-License-Identifier: Apache-2.0
"""The simulated network, relay block by relay block.

In each block recipients acknowledge first: what was sent in earlier blocks, is held, and fits into the budget. Then senders send; an
acknowledgement of the same block has already freed its place in the channel. So the least lag is one block. Bodies start when the block
that lists them exists, so that their arrival is known as soon as they are sent, and a block costs only the messages that move in it.

This is a model of a network. It shares no code with the rules of the protocol, which judge each acknowledgement.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import exp, inf, log
from random import Random
from typing import Final

from validator_simulators import Draws
from validator_simulators.network.metrics import Tally
from validator_simulators.network.policies import IngressQueue, Message, make_queue
from validator_simulators.network.settings import (
    BLOCK_BYTES_MAX,
    BLOCK_MS,
    REQUEST_WAIT_BLOCKS_MAX,
    REQUESTS_MAX,
    SAMPLES_MAX,
    NetworkSettings,
)


class Links:
    """The links between all paras. Each transfer is drawn for itself; the earliest copy of a body counts."""

    def __init__(self, settings: NetworkSettings, draws: Random) -> None:
        self._random = draws.random
        self._delay_ms, self._jitter_ms = settings.delay_ms, settings.jitter_ms
        self._late_share, self._late_ms, self._lost_share = settings.late_share, settings.late_ms, settings.lost_share
        self._request_after_ms = float(settings.request_after_blocks * BLOCK_MS)
        self._backoff = settings.request_backoff

    def deliver(self) -> tuple[int, int]:
        """Send a body when the relay block lists it; request it again for as long as no copy has arrived.

        Returns the milliseconds from that block to the arrival, and the number of re-requests.
        """
        arrival, requests = self._transfer(), 0
        asked, wait = 0.0, self._request_after_ms
        while wait and arrival > asked + wait and requests < REQUESTS_MAX:
            asked += wait
            wait = min(wait * self._backoff, REQUEST_WAIT_BLOCKS_MAX * BLOCK_MS)
            requests += 1
            arrival = min(arrival, asked + self._transfer(may_be_lost=requests < REQUESTS_MAX))
        return int(arrival), requests

    def _transfer(self, *, may_be_lost: bool = True) -> float:
        random = self._random
        if self._lost_share and random() < self._lost_share and may_be_lost:
            return inf
        taken = self._delay_ms - self._jitter_ms * log(1 - random())
        if self._late_share and random() < self._late_share:
            taken -= self._late_ms * log(1 - random())
        return taken


LOGNORMAL_SIGMA: Final = 1.0
"""Standard deviation of the logarithm of a log-normal size: its 99th percentile is six times the mean."""


def channels_of(settings: NetworkSettings, draws: Random) -> list[tuple[int, int]]:
    """Return every channel as (sender, recipient), ascending: a channel's position is its identity."""
    paras = range(settings.paras)
    if settings.traffic == "one":
        return [(sender, 0) for sender in paras[1:]]
    if settings.traffic == "spread":
        offsets = draws.sample(paras[1:], settings.fan_out)
        return [
            (sender, recipient)
            for sender in paras
            for recipient in sorted((sender + each) % settings.paras for each in offsets)
        ]
    cumulative = list(accumulate(1 / (rank + 1) for rank in paras))
    return [
        (sender, recipient)
        for sender in paras
        for recipient in _by_popularity(settings.fan_out, sender, cumulative, draws)
    ]


def _by_popularity(count: int, sender: int, cumulative: list[float], draws: Random) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        recipient = bisect(cumulative, draws.random() * cumulative[-1])
        if recipient != sender:
            found.add(recipient)
    return sorted(found)


def size_draws(settings: NetworkSettings, draws: Random) -> Callable[[], int]:
    """Return a function that draws the bytes of a message: at least 1, at most what a sender may send in a block."""
    mean, random = settings.mean_bytes, draws.random

    def draw() -> float:
        match settings.sizes:
            case "uniform":
                return 2 * mean * random()
            case "lognormal":
                return mean * exp(draws.gauss(0, LOGNORMAL_SIGMA) - LOGNORMAL_SIGMA**2 / 2)
            case _:
                return mean

    def bounded() -> int:
        return max(1, min(BLOCK_BYTES_MAX, round(draw())))

    def exponential() -> int:  # the default, drawn once for each message
        size = int(-mean * log(1 - random())) + 1
        return size if size < BLOCK_BYTES_MAX else BLOCK_BYTES_MAX

    return exponential if settings.sizes == "exponential" else bounded


class Calendar:
    """The channels that send in each block; a channel's next block is drawn when it sends, so that idle channels cost nothing."""

    def __init__(self, channels: int, settings: NetworkSettings, draws: Random) -> None:
        self._random = draws.random
        self._blocks = settings.blocks
        chance = settings.messages_per_block / settings.channels_per_sender
        self._every_block = list(range(channels)) if chance >= 1 else None
        self._log_quiet = log(1 - chance) if chance < 1 else 0.0
        self._due: dict[int, list[int]] = {}
        if self._every_block is None:
            self._schedule(range(channels), 0)

    def due(self, block: int) -> list[int]:
        """Return the channels that send in the block, ascending. Each block is asked for once, in order."""
        if self._every_block is not None:
            return self._every_block
        due = self._due.pop(block, [])
        due.sort()
        self._schedule(due, block)
        return due

    def _schedule(self, channels: range | list[int], block: int) -> None:
        """Draw the next block of each channel: the gaps are geometric."""
        random, log_quiet, calendar = self._random, self._log_quiet, self._due
        for channel in channels:
            at = block + 1 + int(log(1 - random()) / log_quiet)
            if at <= self._blocks:
                calendar.setdefault(at, []).append(channel)


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
