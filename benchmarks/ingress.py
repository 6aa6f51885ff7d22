# SPDX-License-Identifier: Apache-2.0
"""Ingress queues under `xcmp-network`: time per candidate and memory by the number of channels and of unread messages."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final

from validator_xcmp_network.records import Candidate, OutboxMessage
from validator_xcmp_network.rules import XCMP_NETWORK
from validator_xcmp_network.state import NetworkConfiguration, Setup

from benchmarks.figures import Figure
from validator.core.rules import LaneRules
from validator.plugin.protocol_api import ChainSettings, ChannelId, Para

CHANNELS: Final = (1_000, 10_000, 100_000, 1_000_000)
UNREAD: Final = (1_000, 10_000, 100_000)
ACTIVE: Final = 30
"""Paras that send and acknowledge in every block."""
RECIPIENTS: Final = 4
BLOCKS: Final = 150
ROOT: Final = bytes(32)


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure candidates/s of the rules alone, bytes per channel, and acknowledgements from the front of long queues."""
    figures: list[Figure] = []
    for channels in CHANNELS:
        say(f"ingress: {channels:,} channels")
        rates, sizes = [], []
        for _ in range(repeats):
            gc.collect()
            tracemalloc.start()
            rules, paras = _meshed(channels)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0] / channels)
            tracemalloc.stop()
            rates.append(_rate(rules, paras))
        figures += [
            Figure(
                "ingress", f"{channels:,} channels: 4 messages and 4 acknowledgements", "candidates/s", tuple(rates)
            ),
            Figure("ingress", f"{channels:,} channels: memory of an unused one", "bytes", tuple(sizes)),
        ]
    for unread in UNREAD:
        say(f"ingress: {unread:,} unread messages")
        runs = tuple(_front(unread) for _ in range(repeats))
        figures.append(Figure("ingress", f"{unread:,} unread: acknowledge the front", "us", runs))
    return figures


def _meshed(channels: int) -> tuple[LaneRules, list[int]]:
    """Return a chain whose paras all have channels to each other, about as many as asked, and its paras."""
    paras = list(range(1, int(channels**0.5) + 2))
    return _chain(paras, (pair for pair in product(paras, paras) if pair[0] != pair[1])), paras


def _chain(paras: list[int], channels: Iterator[ChannelId]) -> LaneRules:
    network = NetworkConfiguration(max_channel_messages=2**32 - 1)
    setup = Setup(network, open_channels=tuple(channels))
    return XCMP_NETWORK.at_genesis(ChainSettings(setup, tuple(map(Para, paras))))


def _rate(rules: LaneRules, paras: list[int]) -> float:
    """Return candidates/s: in every block some paras send to others, and acknowledge what the block before sent to them."""
    step = max(1, len(paras) // ACTIVE)
    active = paras[::step][:ACTIVE]
    outboxes = [
        tuple(
            OutboxMessage(each, ROOT, 100)
            for each in sorted(active[(at + n) % len(active)] for n in range(1, 1 + RECIPIENTS))
        )
        for at in range(len(active))
    ]
    senders = [[active[(at - n) % len(active)] for n in range(1, 1 + RECIPIENTS)] for at in range(len(active))]
    took = 0.0
    gc.collect()
    gc.freeze()
    gc.disable()
    for block in range(1, 1 + BLOCKS):
        candidates = [
            Candidate(
                para, block - 1, outboxes[at], tuple((block - 1, each) for each in senders[at]) if block > 1 else ()
            )
            for at, para in enumerate(active)
        ]
        began = time.process_time()
        rules.begin_block(block)
        for candidate in candidates:
            rules.apply_candidate(candidate)
        took += time.process_time() - began
    gc.enable()
    gc.unfreeze()
    return BLOCKS * len(active) / took


def _front(unread: int) -> float:
    """Return the microseconds of a candidate that acknowledges the front of a queue; its messages come from one hundred senders."""
    senders = list(range(2, 102))
    rules = _chain([1, *senders], ((sender, 1) for sender in senders))
    blocks = unread // len(senders)
    for block in range(1, 1 + blocks):
        rules.begin_block(block)
        for sender in senders:
            rules.apply_candidate(Candidate(sender, block - 1, (OutboxMessage(1, ROOT, 100),)))
    count = len(senders)
    candidates = [Candidate(1, blocks, (), ((1, sender),)) for sender in senders]
    gc.collect()
    began = time.process_time()
    for at, candidate in enumerate(candidates):
        rules.begin_block(blocks + 1 + at)
        rules.apply_candidate(candidate)
    return (time.process_time() - began) / count * 1e6
