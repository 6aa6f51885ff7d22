# SPDX-License-Identifier: Apache-2.0
"""Channel topologies: those of real relay chains (topology.json names its source), and extensions of the same shape."""

from __future__ import annotations

import json
from pathlib import Path

from validator.errors import UserError
from validator.simulate import Draws

FIRST_MADE_UP_PARA = 4000  # beyond the para ids of the recorded chains
HUBS = 5


def recorded_channels(chain: str) -> list[tuple[int, int]]:
    """Return the (sender, recipient) pairs recorded on a real relay chain, ascending."""
    tables = json.loads(Path(__file__).with_name("topology.json").read_text(encoding="utf-8"))
    if chain == "source" or chain not in tables:
        raise UserError(f"topology: expected one of {', '.join(sorted(tables.keys() - {'source'}))}, found {chain!r}")
    return [(sender, recipient) for sender, recipient in tables[chain]]


def by_degree(channels: list[tuple[int, int]]) -> list[int]:
    """Return the paras of the channels, the busiest first."""
    degree: dict[int, int] = {}
    for pair in channels:
        for para in pair:
            degree[para] = degree.get(para, 0) + 1
    return sorted(degree, key=lambda para: (-degree[para], para))


def channels_to_hubs(para: int, hubs: list[int], rng: Draws) -> list[tuple[int, int]]:
    """Return a new para's channels: both directions, to the busiest hub and to one other."""
    partners = [hubs[0], hubs[rng.randrange(1, len(hubs))]] if len(hubs) > 1 else hubs
    return [pair for hub in partners for pair in ((para, hub), (hub, para))]


def topology(chain: str, paras: int, rng: Draws, at_least: int = 0) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the given number of paras, busiest first, and their channels.

    Recorded paras come first; further paras connect to the hubs. A para with fewer than `at_least` recipients also sends to its
    successors in a ring.
    """
    recorded = recorded_channels(chain)
    chosen = by_degree(recorded)[:paras]
    channels = [pair for pair in recorded if pair[0] in chosen and pair[1] in chosen]
    hubs = chosen[:HUBS]
    for para in range(FIRST_MADE_UP_PARA, FIRST_MADE_UP_PARA + paras - len(chosen)):
        chosen.append(para)
        channels.extend(channels_to_hubs(para, hubs, rng))
    for position, sender in enumerate(chosen):
        recipients = [recipient for origin, recipient in channels if origin == sender]
        for step in range(1, len(chosen)):
            recipient = chosen[(position + step) % len(chosen)]
            if len(recipients) < at_least and recipient not in recipients:
                recipients.append(recipient)
                channels.append((sender, recipient))
    return chosen, channels
