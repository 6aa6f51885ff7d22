# SPDX-License-Identifier: Apache-2.0
"""Four protocols under the same traffic: candidates/s of the rules alone, bytes of state, and the cost of a row's root under XCMP."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from validator_simulators.router.chains import LIMITS
from validator_xcmp.row_trees import RowTrees, row_root
from validator_xcmp.state import Column

from benchmarks.figures import Figure
from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input
from validator.config import Config
from validator.core.execute import Intervals, execute
from validator.core.inputs import DeadLetter, Source
from validator.core.records import block_record
from validator.core.rules import RuleSet, pages
from validator.core.types import Block
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.topics import INPUT_TOPICS

Json = dict[str, Any]

LANE: Final = "polkadot"
FIRST_PARA: Final = 2000
PARAS: Final = 100
CHANNELS: Final = 10
"""Outbound channels of a para, to the paras with the next ids."""
BLOCKS: Final = 400
MESSAGE: Final = "5a" * 120
EVERYBODY: Final = 2**32 - 1
ON_CHAIN_XCMP_BYTES: Final = 36
ROW_COLUMNS: Final = (10, 10_000)
ROOTS: Final = 2_000
FIXED: Final = "xcmp-network"
"""The protocol whose channels the configuration lists."""
INTERVALS: Final = Intervals(headroom=0, root=0)


@dataclass(frozen=True, slots=True)
class Traffic:
    """One protocol's form of the traffic: limits, the request and its acceptance, a candidate that sends over its n-th channel."""

    protocol: str
    limits: Json
    init: Callable[[int, int], Json]
    accept: Callable[[int, int], Json]
    candidate: Callable[[int, int, int, int], Json]
    """Takes (para, recipient, number of the channel, block)."""


def _router_init(sender: int, recipient: int) -> Json:
    sizes = {"max_places": 8, "max_message_size": 1024}
    return {"kind": "init_open_channel", "origin": sender, "recipient": recipient, **sizes}


def _init(sender: int, recipient: int) -> Json:
    return {"kind": "init_open_channel", "origin": sender, "recipient": recipient}


def _accept(sender: int, recipient: int) -> Json:
    return {"kind": "accept_open_channel_from", "origin": recipient, "sender": sender}


TRAFFIC: Final = (
    Traffic(
        "router",
        {"host_configuration": LIMITS["polkadot"]},
        _router_init,
        lambda sender, recipient: {"kind": "accept_open_channel", "origin": recipient, "sender": sender},
        lambda para, recipient, _, block: {
            "para_id": para,
            "hrmp_watermark": block - 1,
            "horizontal_messages": [{"recipient": recipient, "data": MESSAGE}],
        },
    ),
    Traffic(
        "early-hrmp",
        {
            "limits": {
                "hrmp_channel_max_places": 8,
                "hrmp_channel_max_size": 8192,
                "hrmp_max_outbound_channels": CHANNELS,
                "hrmp_open_request_ttl": 2,
            }
        },
        _init,
        _accept,
        lambda para, recipient, _, block: {
            "para_id": para,
            "dmq_watermark": block - 1,
            "hrmp_messages": [{"sender": para, "recipient": recipient, "payload": MESSAGE}],
        },
    ),
    Traffic(
        "xcmp",
        {"limits": {"xcmp_channel_capacity": 8, "xcmp_max_outbound_channels": CHANNELS, "xcmp_open_request_ttl": 2}},
        _init,
        _accept,
        lambda para, _, number, block: {
            "para_id": para,
            "watermark": {"block": block - 1, "para": EVERYBODY},
            "bitfield": "1".rjust(number + 1, "0"),
            "message_root": f"{para:08x}" * 8,
        },
    ),
    Traffic(
        "xcmp-network",
        {},
        _init,
        _accept,
        lambda para, recipient, number, block: {
            "para_id": para,
            "outbox": [{"recipient": recipient, "root": f"{para:08x}" * 8, "size": len(MESSAGE) // 2}],
            "acks": [] if block == 2 else [[block - 1, _sender(para, number)]],
        },
    ),
)


def _sender(para: int, number: int) -> int:
    """Return the para that sent to this one in the block before: over its channel with the number before."""
    distance = 1 + (number - 1) % CHANNELS
    return FIRST_PARA + (para - FIRST_PARA - distance) % PARAS


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure each protocol's rate and state, and the cost of a row's root."""
    rates: dict[str, list[float]] = {}
    state: dict[str, tuple[float, float]] = {}
    for traffic in TRAFFIC:
        say(f"protocols: {traffic.protocol}")
        for _ in range(repeats):
            bare = _state_bytes(_definition(traffic, ()).create().rules)
            definition = _definition(traffic, _channels())
            rules = definition.create().rules
            _execute(rules, definition, _opening(traffic))
            idle = _state_bytes(rules) - bare
            blocks = list(_sending(traffic))
            _execute(rules, definition, blocks[:1])
            waiting = _state_bytes(rules) - bare - idle
            state[traffic.protocol] = idle / (PARAS * CHANNELS), waiting / PARAS
            rates.setdefault(traffic.protocol, []).append(_rate(rules, definition, blocks[1:]))
    figures = [
        Figure("protocols", f"{name}: {PARAS} paras, {PARAS * CHANNELS:,} channels", "candidates/s", tuple(runs))
        for name, runs in rates.items()
    ]
    for name, (idle_bytes, waiting_bytes) in state.items():
        note = f"the specification counts {ON_CHAIN_XCMP_BYTES} on chain" if name == "xcmp" else ""
        figures += [
            Figure("protocols", f"{name}: state of a channel", "bytes", (idle_bytes,), note=note),
            Figure(
                "protocols", f"{name}: a message of {len(MESSAGE) // 2} bytes that waits", "bytes", (waiting_bytes,)
            ),
        ]
    for columns in ROW_COLUMNS:
        say(f"protocols: roots of a row of {columns:,} columns")
        figures += _row_roots(columns, repeats)
    return figures


def _definition(traffic: Traffic, channels: Iterable[tuple[int, int]]) -> LaneDefinition:
    genesis = [{"para_id": FIRST_PARA + at, "kind": "parachain", "balance": 0} for at in range(PARAS)]
    chain = {"protocol": traffic.protocol, "balances": "unlimited", "genesis_paras": genesis, **traffic.limits}
    if traffic.protocol == FIXED:
        chain["limits"] = {"open_channels": [list(channel) for channel in channels]}
    return lane_definition(Config.model_validate({"chains": {LANE: chain}}), LANE)


def _channels() -> Iterator[tuple[int, int]]:
    for at in range(PARAS):
        for number in range(1, 1 + CHANNELS):
            yield FIRST_PARA + at, FIRST_PARA + (at + number) % PARAS


def _opening(traffic: Traffic) -> list[Json]:
    """Return the block in which every channel is requested, accepted and, at its end, opened, unless all are fixed."""
    requests = (
        []
        if traffic.protocol == FIXED
        else [call(*channel) for channel in _channels() for call in (traffic.init, traffic.accept)]
    )
    change: Json = {"outgoing": [], "onboarding": []}
    return [{"block": 1, "requests": requests, "candidates": [], "session_change": change}]


def _sending(traffic: Traffic) -> Iterator[Json]:
    """Yield blocks in which every para reads all messages, and sends over one of its channels."""
    for block in range(2, 2 + BLOCKS):
        number = block % CHANNELS
        candidates = [
            traffic.candidate(FIRST_PARA + at, FIRST_PARA + (at + 1 + number) % PARAS, number, block)
            for at in range(PARAS)
        ]
        yield {"block": block, "requests": [], "candidates": candidates, "session_change": None}


def _prepared(rules: RuleSet[Any], definition: LaneDefinition, blocks: list[Json]) -> list[Block]:
    """Return blocks in the core's types, by way of their Avro bytes."""

    def fields(topic: str, record: Json, *place: int) -> tuple[Any, ...]:
        kind = INPUT_TOPICS[topic]
        named = {"lane": LANE, **dict(zip(("block", "index"), place, strict=False)), **record}
        value = encode_input(definition.codec, kind, named, definition.plan.protocol)
        decoded = decode_record(definition.codec, kind, value, Source(topic, 0, 0), None, {LANE: definition.records})
        assert not isinstance(decoded, DeadLetter), decoded
        return decoded[1].fields

    made = []
    for block in blocks:
        number, requests, candidates = block["block"], block["requests"], block["candidates"]
        record = {
            "parent_number": None,
            "block_hash": None,
            "downward": 0,
            "included": [],
            "timed_out": [],
            "requests": len(requests),
            "candidates": len(candidates),
            "session_change": block["session_change"],
        }
        made.append(
            Block(
                block_record(fields("blocks", record, number)),
                tuple(rules.request(fields("channel-requests", each, number, at)) for at, each in enumerate(requests)),
                (),
                tuple(rules.candidate(fields("candidates", each, number, at)) for at, each in enumerate(candidates)),
            )
        )
    return made


def _execute(rules: RuleSet[Any], definition: LaneDefinition, blocks: list[Json]) -> None:
    for block in _prepared(rules, definition, blocks):
        executed = execute(rules, block, INTERVALS)
        refused = [verdict for verdict in executed.verdicts if verdict.violation is not None]
        assert not refused, refused[0]


def _rate(rules: RuleSet[Any], definition: LaneDefinition, blocks: list[Json]) -> float:
    prepared = _prepared(rules, definition, blocks)
    gc.collect()
    gc.freeze()
    gc.disable()
    began = time.process_time()
    for block in prepared:
        assert execute(rules, block, INTERVALS).receipt.rejected == 0
    took = time.process_time() - began
    gc.enable()
    gc.unfreeze()
    return len(prepared) * PARAS / took


def _state_bytes(rules: RuleSet[Any]) -> int:
    return sum(map(len, pages(rules)))


def _row_roots(columns: int, repeats: int) -> Iterator[Figure]:
    row = [Column(FIRST_PARA + at, 8, 0, 0, 7, bytes(32)) for at in range(columns)]
    trees = RowTrees()
    trees.root(FIRST_PARA, row, ())
    from_scratch: list[float] = []
    changed: list[float] = []
    for _ in range(repeats):
        from_scratch.append(_microseconds(lambda: row_root(row), max(3, 10 * ROOTS // columns)))
        changed.append(_microseconds(lambda: trees.root(FIRST_PARA, row, (columns // 2,)), ROOTS))
    yield Figure("protocols", f"xcmp: root of a row of {columns:,} columns, from scratch", "us", tuple(from_scratch))
    yield Figure("protocols", f"xcmp: ... after one of the {columns:,} has changed", "us", tuple(changed))


def _microseconds(call: Callable[[], object], count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - began) / count * 1e6
