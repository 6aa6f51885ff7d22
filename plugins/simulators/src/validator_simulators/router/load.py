# SPDX-License-Identifier: Apache-2.0
"""Pure load: a running chain whose candidates are all accepted, generated without the model.

Paras form a ring and send to their successors. All paras send equally often, and each candidate's watermark is the parent
block. So a channel never holds more than a few messages and no limit is reached, by construction. A test runs a load
through the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from validator.errors import UserError
from validator_simulators import Draws, Record, SimulatedBlock
from validator_simulators.router.chains import HORIZONTAL, POLKADOT, draw_size
from validator_simulators.router.model import ZERO_HASH

POOL = 997  # random payloads to choose from; each message also carries its number, so no two are the same
FIRST_PARA = 2000


@dataclass(frozen=True, slots=True)
class SettingsLoad:
    """A load of `blocks` times `candidates_per_block` candidates with one horizontal message each.

    If `message_size_bytes` is None, sizes are drawn from those of real channels, 40 to 1,203 bytes. The minimum is 8.
    """

    seed: int = 1
    lane: str = "polkadot"
    paras: int = 100
    channels: int = 1000
    candidates_per_block: int = 100
    blocks: int = 100
    first_block: int = 1000
    message_size_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.paras < 2:
            raise UserError(f"paras: expected 2 or more, found {self.paras}")
        if not self.paras <= self.channels <= self.paras * (self.paras - 1):
            most = self.paras * (self.paras - 1)
            raise UserError(f"channels: expected {self.paras} to {most} for {self.paras} paras, found {self.channels}")
        if not 1 <= self.candidates_per_block <= self.paras:
            raise UserError(
                f"candidates_per_block: expected 1 to {self.paras} (paras), found {self.candidates_per_block}"
            )
        if self.first_block < 1:
            raise UserError(f"first_block: expected 1 or more, found {self.first_block}")
        if self.message_size_bytes is not None and not 8 <= self.message_size_bytes <= 102_400:
            raise UserError(f"message_size_bytes: expected 8 to 102400, found {self.message_size_bytes}")


def load_channels(settings: SettingsLoad) -> list[list[int]]:
    """Return each para's recipients in the ring, in sending order."""
    rounds, rest = divmod(settings.channels, settings.paras)
    paras = settings.paras
    return [
        [FIRST_PARA + (position + step) % paras for step in range(1, rounds + 1 + (position < rest))]
        for position in range(paras)
    ]


def load_chain(settings: SettingsLoad) -> dict[str, Any]:
    """Return the lane's configuration in the shape of `RouterSimulation.chain`. Its paras come with the initial state."""
    return {
        "lane": settings.lane,
        "protocol": "router",
        "first_block": settings.first_block,
        "enactment": "immediate",
        "hrmp_notifications": False,
        "balances": "ledger",
        "config": dict(POLKADOT),
        "genesis_paras": [],
        "ump_weights": {},
        "ump_default_weight": 1_000_000_000,
        "ump_failing_messages": [],
    }


def initial_state(settings: SettingsLoad) -> dict[str, Any]:
    """Return the state before the first block, with every key of the traces: all channels are open and empty."""
    sender_deposit = POLKADOT["hrmp_sender_deposit"]
    recipient_deposit = POLKADOT["hrmp_recipient_deposit"]
    channel = {
        "sender_deposit": sender_deposit,
        "recipient_deposit": recipient_deposit,
        "limit_used_places": POLKADOT["hrmp_channel_max_places"],
        "limit_used_bytes": POLKADOT["hrmp_channel_max_size"],
        "limit_message_size": POLKADOT["hrmp_channel_max_message_size"],
        "used_places": 0,
        "used_bytes": 0,
        "mqc_head": ZERO_HASH,
    }
    paras = list(range(FIRST_PARA, FIRST_PARA + settings.paras))
    egress = dict(zip(paras, map(sorted, load_channels(settings)), strict=True))
    ingress: dict[int, list[int]] = {para: [] for para in paras}
    names = []
    for sender in paras:
        for recipient in egress[sender]:
            ingress[recipient].append(sender)
            names.append(f"{sender}->{recipient}")
    reserved = {p: len(egress[p]) * sender_deposit + len(ingress[p]) * recipient_deposit for p in paras}
    return {
        "channels": {name: dict(channel) for name in names},
        "channel_set": names,
        "open_requests": {},
        "open_request_set": [],
        "close_request_set": [],
        "open_request_count": {},
        "accepted_request_count": {},
        "ingress": {str(para): ingress[para] for para in paras if ingress[para]},
        "egress": {str(para): egress[para] for para in paras},
        "contents": {},
        "digests": {},
        "watermarks": {},
        "dmq": {},
        "dmq_heads": {},
        "mqc_heads": {str(p): [[sender, ZERO_HASH] for sender in ingress[p]] for p in paras if ingress[p]},
        "ump_queues": {},
        "ump_queue_size": {},
        "needs_dispatch": [],
        "next_dispatch_round_start_with": None,
        "balances": {str(para): {"free": 0, "reserved": reserved[para]} for para in paras},
        "valid_paras": paras,
        "outgoing_paras": [],
        "ready_ring": None,
        "ump_overweight": None,
    }


def load(settings: SettingsLoad) -> Iterator[SimulatedBlock]:
    """Yield the blocks of the load; `expected` accepts every candidate."""
    rng = Draws(settings.seed)
    pool = []
    for _ in range(POOL):
        size = settings.message_size_bytes or draw_size(rng, HORIZONTAL, 102_400)
        pool.append(rng.hex(size - 8))
    recipients = load_channels(settings)
    paras, lane = settings.paras, settings.lane
    number = 0
    for block in range(settings.first_block, settings.first_block + settings.blocks):
        header = {
            "lane": lane,
            "block": block,
            "parent_number": None,
            "block_hash": None,
            "candidates": settings.candidates_per_block,
            "requests": 0,
            "downward": 0,
            "included": [],
            "timed_out": [],
            "session_change": None,
        }
        records: list[Record] = [("blocks", header)]
        expected = []
        for index in range(settings.candidates_per_block):
            turn, position = divmod(number, paras)
            channels = recipients[position]
            message = {"recipient": channels[turn % len(channels)], "data": f"{number:016x}{pool[number % POOL]}"}
            candidate = {
                "lane": lane,
                "block": block,
                "index": index,
                "para_id": FIRST_PARA + position,
                "relay_parent_number": None,
                "hrmp_watermark": block - 1,
                "upward_messages": [],
                "processed_downward_messages": 0,
                "horizontal_messages": [message],
                "candidate_hash": None,
            }
            records.append(("candidates", candidate))
            expected.append({"lane": lane, "block": block, "kind": "candidate", "index": index, "ok": True})
            number += 1
        yield SimulatedBlock(block, records, expected)
