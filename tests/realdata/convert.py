# SPDX-License-Identifier: Apache-2.0
"""Converts recorded chain data into a lane's inputs: a configuration, a STATE.json to start from in mid-chain, and records in JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.realdata.recorded import Json, blocks, events
from tests.unit.lanes.chains import Record, record
from validator.config import Config
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.protocols.router.configuration import CONFIGURATION_FIELDS

RENAMED = {
    "hrmp_channel_max_capacity": "hrmp_channel_max_places",
    "hrmp_channel_max_total_size": "hrmp_channel_max_size",
}
"""Names that the chain uses today for two of the limits of router.txt."""

PLACEHOLDER = b"not recorded".hex()
"""Payload of a message of which only its existence is known."""

NOT_RECORDED_CHANNELS = {"polkadot": [(2000, 2012)]}
"""The chain accepted a message on this channel (block 17844565), so it was open."""

ChannelId = tuple[int, int]
Records = list[tuple[str, Json]]


class Conversion(NamedTuple):
    """A run of blocks as records of the input topics, block by block."""

    records: Records
    skipped_inclusions: int
    """Inclusions of candidates that were backed before the run; their contents were not recorded."""
    timed_out: int


def convert(
    chain: str, run: Iterable[int], downward: dict[int, int] | None = None, recorded: dict[int, Json] | None = None
) -> Conversion:
    """Return the records of a run of blocks.

    ``downward`` names, by block, the para to which the relay chain sends a message that is not recorded there. A candidate that is still
    pending when the next one of its para is backed has timed out. ``recorded`` are the blocks, by default those of `recorded.blocks`.
    """
    recorded = blocks(chain) if recorded is None else recorded
    sent = downward or {}
    pending: dict[int, tuple[int, str]] = {}
    records: Records = []
    skipped = dropped = 0
    for number in run:
        block = recorded[number]
        included = []
        for event in block["events"]:
            assert event["event"] == "Included"
            if event["para"] not in pending:
                skipped += 1
                continue
            backed_at, commitments_hash = pending.pop(event["para"])
            assert commitments_hash == event["commitments_hash"], f"another candidate of {event['para']} was included"
            included.append({"para_id": event["para"], "backed_at": backed_at})
        timed_out = [
            {"para_id": candidate["para"], "backed_at": pending[candidate["para"]][0]}
            for candidate in block["candidates"]
            if candidate["para"] in pending
        ]
        dropped += len(timed_out)
        records.append(("blocks", _block(chain, block, included, timed_out, downward=number in sent)))
        if number in sent:
            message = {"para_id": sent[number], "msg": PLACEHOLDER}
            records.append(("downward-messages", {"lane": chain, "block": number, "index": 0, **message}))
        for index, candidate in enumerate(block["candidates"]):
            records.append(("candidates", candidate_record(candidate, index)))
            pending[candidate["para"]] = (number, candidate["commitments_hash"])
    return Conversion(records, skipped, dropped)


def _block(chain: str, block: Json, included: list[Json], timed_out: list[Json], *, downward: bool) -> Json:
    return {
        "lane": chain,
        "block": block["number"],
        "parent_number": None,
        "block_hash": block["hash"],
        "candidates": len(block["candidates"]),
        "requests": 0,
        "downward": int(downward),
        "included": included,
        "timed_out": timed_out,
        "session_change": None,
    }


def candidate_record(candidate: Json, index: int) -> Json:
    """Return the record of a recorded candidate.

    A candidate names its relay parent by hash. If that block is not recorded, the watermark serves as its number: the number cannot be
    less, and a lower watermark would need a message in that block.
    """
    relay_parent_number = candidate["relay_parent_number"]
    if relay_parent_number is None:
        relay_parent_number = candidate["hrmp_watermark"]
    return {
        "lane": candidate["chain"],
        "block": candidate["relay_block"],
        "index": index,
        "para_id": candidate["para"],
        "relay_parent_number": relay_parent_number,
        "hrmp_watermark": candidate["hrmp_watermark"],
        "upward_messages": candidate["upward_messages"],
        "processed_downward_messages": candidate["processed_downward_messages"],
        "horizontal_messages": [
            {"recipient": message["recipient"], "data": message["data"]} for message in candidate["horizontal_messages"]
        ],
        "candidate_hash": None,
    }


# --- the state that a lane starts from ---


def host_configuration(chain: str, block: int, preset: str) -> Json:
    """Return the chain's configuration as last recorded at or before a block; a preset supplies the rest."""
    known = [
        event
        for event in events()["host_configuration"]
        if event["chain"] == chain and event["seen_relay_blocks"][0] <= block
    ]
    newest = max(known, key=lambda event: event["seen_relay_blocks"][0])
    decoded = {RENAMED.get(name, name): value for name, value in newest["decoded"].items()}
    return {"preset": preset, **{name: value for name, value in decoded.items() if name in CONFIGURATION_FIELDS}}


def not_recorded(configuration: Json) -> list[str]:
    """Return the names of the values that come from the preset only."""
    return [name for name in CONFIGURATION_FIELDS if name not in configuration]


def seed(chain: str, first_block: int, *, channels: dict[ChannelId, Json] | None = None, **keys: Any) -> Json:
    """Return the STATE.json of a lane that starts in mid-chain at a block; ``keys`` are additional state keys.

    Its channels are all that were ever recorded, with limits and deposits, and without contents. Few records say which of them were open at
    that block, but an extra channel changes no verdict on a chain that accepted every candidate. Heads are not seeded: most were read at a
    block after the run. Watermarks are not seeded, so the first candidates of a para are not checked against one.
    """
    if channels is None:
        channels = recorded_channels(chain)
    paras = {para for ends in channels for para in ends}
    paras |= {candidate["para"] for candidate in events()["candidate"] if candidate["chain"] == chain}
    reserved: Counter[int] = Counter()
    for (sender, recipient), channel in channels.items():
        reserved[sender] += channel.get("sender_deposit", 0)
        reserved[recipient] += channel.get("recipient_deposit", 0)
    state = {
        "valid_paras": sorted(paras),
        "channels": {f"{sender}->{recipient}": channel for (sender, recipient), channel in sorted(channels.items())},
        "balances": {str(para): {"free": 0, "reserved": amount} for para, amount in sorted(reserved.items())},
    }
    return {"first_block": first_block, "state": state | keys}


def recorded_channels(chain: str) -> dict[ChannelId, Json]:
    """Return every channel that was recorded or must have existed, in the keys of a STATE.json."""
    found = {
        (event["sender"], event["recipient"]): {
            "limit_used_places": event["max_capacity"],
            "limit_used_bytes": event["max_total_size"],
            "limit_message_size": event["max_message_size"],
            "sender_deposit": event["sender_deposit"],
            "recipient_deposit": event["recipient_deposit"],
        }
        for event in events()["channel"]
        if event["chain"] == chain
    }
    return found | {ends: dict(LIMITS) for ends in NOT_RECORDED_CHANNELS.get(chain, ())}


LIMITS = {"limit_used_places": 1000, "limit_used_bytes": 102_400, "limit_message_size": 102_400}
"""Deposit of nearly every real channel."""


def definition(
    chain: str, state: Json, directory: Path, *, preset: str = "polkadot-2023", profile: str = "router/seed"
) -> LaneDefinition:
    """Return the lane that follows a chain from a state, made as the job makes it: from a configuration and a STATE.json."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{chain}-{state['first_block']}.json"
    path.write_text(json.dumps(state), encoding="utf-8")
    table = {
        "enactment": "on-inclusion",
        "balances": "unlimited",
        "state": str(path),
        "host_configuration": host_configuration(chain, state["first_block"], preset),
        "rules": [{"from_block": 0, "profile": profile}],
    }
    config = Config.model_validate({"chains": {chain: table}, "job": {"directory": str(directory)}})
    return lane_definition(config, chain)


def encoded(records: Records) -> list[Record]:
    """Return records as they go to Kafka."""
    return [record(topic, body) for topic, body in records]
