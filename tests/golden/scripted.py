# SPDX-License-Identifier: Apache-2.0
"""Records that no simulated chain has: upward messages for handlers, skipped blocks, and records that must become dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

from tests.golden.product import INPUT_TOPICS, encode_input, write

Row: TypeAlias = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of a Kafka record."""

PARAS = (2000, 2001, 2002, 2003)

HANDLED: dict[str, Any] = {
    "protocol": "router",
    "host_configuration": {
        "max_upward_message_num_per_candidate": 9,
        "max_upward_message_size": 2_000,
        "max_upward_queue_count": 30,
        "max_upward_queue_size": 20_000,
        "preferred_dispatchable_upward_messages_step_weight": 9_000,
        "max_downward_message_size": 200,
        "hrmp_max_message_num_per_candidate": 3,
        "hrmp_channel_max_places": 4,
        "hrmp_channel_max_message_size": 80,
        "hrmp_channel_max_size": 160,
        "hrmp_max_parachain_outbound_channels": 3,
        "hrmp_max_parachain_inbound_channels": 3,
        "hrmp_sender_deposit": 50,
        "hrmp_recipient_deposit": 30,
        "hrmp_open_request_ttl": 2,
    },
    "genesis_paras": [{"para_id": para, "balance": 1_000 + para} for para in PARAS],
    "ump_default_weight": 700,
    "ump_message_weight_max": 2_200,
    "handlers": [
        {"name": "balances", "config": {"existential_deposit": 500}},
        {"name": "balances", "from_block": 8, "config": {"existential_deposit": 10}},
        {"name": "hrmp-calls"},
        {"name": "remark"},
        {"name": "remark", "from_block": 11, "removed": True},
    ],
}
"""A chain whose upward messages go to three plugins; one gets a new configuration at a later block, one is removed."""

HANDLED_BLOCKS = 14


def record(topic: str, **body: Any) -> bytes:
    """Return an encoded input record of the router."""
    return encode_input(INPUT_TOPICS[topic], body)


def block_record(lane: str, block: int, **fields: Any) -> bytes:
    """Return a block record that announces only what ``fields`` gives."""
    body: dict[str, Any] = {"candidates": 0, "requests": 0, "downward": 0, **fields}
    return record("blocks", lane=lane, block=block, **body)


def candidate(lane: str, block: int, index: int, para: int, **fields: Any) -> bytes:
    """Return a candidate that sends only what ``fields`` gives."""
    body: dict[str, Any] = {
        "hrmp_watermark": block - 1,
        "upward_messages": [],
        "processed_downward_messages": 0,
        "horizontal_messages": [],
        **fields,
    }
    return record("candidates", lane=lane, block=block, index=index, para_id=para, **body)


def downward(lane: str, block: int, index: int, msg: str = "aa", para: int = 2000) -> bytes:
    """Return a downward message."""
    return record("downward-messages", lane=lane, block=block, index=index, para_id=para, msg=msg)


# --- upward messages, as the bytes of calls ---


def _u32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def _compact(number: int) -> bytes:
    if number < 1 << 6:
        return bytes([number << 2])
    return ((number << 2) | 1).to_bytes(2, "little") if number < 1 << 14 else ((number << 2) | 2).to_bytes(4, "little")


def _transfer(call: int, para: int, value: int) -> bytes:
    return bytes((5, call, 0)) + (b"para" + _u32(para)).ljust(32, b"\0") + _compact(value)


def _remark(call: int, text: bytes) -> bytes:
    return bytes((0, call)) + _compact(len(text)) + text


def upward_messages(block: int, para: int) -> list[bytes]:
    """Return the messages that a para sends in a block: over the chain, calls of every kind with every outcome of a dispatch."""
    other = PARAS[(PARAS.index(para) + block) % len(PARAS)]
    init, accept, close = (
        b"\x3c\0" + _u32(other, 2, 64),
        b"\x3c\1" + _u32(PARAS[PARAS.index(para) - (block - 1) % len(PARAS)]),
        b"\x3c\2" + _u32(para, PARAS[(PARAS.index(para) + 1) % len(PARAS)]),
    )
    by_block = {
        1: [init, _remark(0, b"first of %d" % para)],
        2: [accept, _remark(7, b"second of %d" % para), _transfer(0, other, 40)],
        3: [_transfer(3, other, 900), _transfer(3, other, 560), b"\xee nobody takes this"],
        4: [init, _remark(7, b"w" * 1_500), _transfer(0, 2999, 5)],
        5: [accept[:-1], _transfer(0, other, 5_000), _remark(0, b"left over") + b"!"],
        6: [_remark(7, b"sixth"), _transfer(0, other, 0)],
        7: [close, b"\x05\0\1" + bytes(33), _remark(7, b"x" * (para - 1_900))],
        8: [_transfer(3, other, 25), init],
        9: [_transfer(0, para, 25), close, b""],
        10: [_remark(7, b"the last one that is taken"), _transfer(0, other, 1)],
        11: [_remark(7, b"nobody keeps this"), _transfer(3, other, 2_000)],
        12: [_transfer(0, other, value) for value in range(1, 8)],
    }
    return by_block.get(block, [_transfer(0, other, 3)])


def handled_rows(lane: str) -> Iterator[tuple[int, Row]]:
    """Yield block and row of each record of the chain with handlers."""
    key = lane.encode()
    for block in range(1, HANDLED_BLOCKS + 1):
        change = {"outgoing": [2003] if block == 12 else [], "onboarding": [], "new_config": None}
        session = {"session_change": change} if block % 4 == 0 else {}
        for index, para in enumerate(PARAS):
            sent = [{"recipient": PARAS[(block + index) % 4], "data": f"{block:02x}{para:08x}"}]
            receives = index < 1 + block % 3
            body = candidate(
                lane,
                block,
                index,
                para,
                upward_messages=[message.hex() for message in upward_messages(block, para)],
                processed_downward_messages=int(receives),
                horizontal_messages=sent if block > 4 and index == 0 else [],
            )
            yield block, ("candidates", key, body)
        for index, para in enumerate(PARAS[: 1 + block % 3]):
            yield block, ("downward-messages", key, downward(lane, block, index, f"{block:02x}" * 9, para))
        announced = {"candidates": len(PARAS), "downward": 1 + block % 3}
        yield block, ("blocks", key, block_record(lane, block, **announced, **session))


# --- block numbers that a chain skips ---

GAPS: dict[str, Any] = {"protocol": "router", "first_block": 5, "host_configuration": {"preset": "minimal"}}


def gap_rows(lane: str) -> Iterator[tuple[int, Row]]:
    """Yield a chain of blocks 5, 7, 8 and 11, records of the skipped ones, and a block whose parent never arrives."""
    key, numbers = lane.encode(), (4, 5, 7, 8, 11)
    yield 5, ("blocks", key, block_record(lane, 10, parent_number=9))
    for parent, number in pairwise(numbers):
        for skipped in range(parent + 1, number):
            yield number, ("candidates", key, candidate(lane, skipped, 0, 2000))
            yield number, ("downward-messages", key, downward(lane, skipped, 0))
        yield number, ("blocks", key, block_record(lane, number, parent_number=parent))


# --- dead letters ---


def unreadable(lane: str, good: bytes, other: tuple[str, bytes]) -> Iterator[Row]:
    """Yield records that cannot be decoded.

    ``good`` is a candidate of the lane, ``other`` a lane of another protocol and its candidate.
    """
    key = lane.encode()
    yield "candidates", key, b""
    yield "candidates", key, None
    yield "candidates", key, b'{"json": true}'
    yield "candidates", key, good[:-3]
    yield "candidates", key, good + b"\0"
    yield "candidates", key, good[:10] + b"\xff" * 40
    yield "candidates", key, b"\0" + bytes(range(200))
    yield "blocks", key, good
    yield "channel-requests", key, b"\xc3\x01" + bytes(range(1, 9)) + b"what is this"
    message = {"lane": lane, "block": 1, "index": 0, "para_id": 0, "msg": b""}
    for changed in (
        {"block": -1},
        {"block": 2**32},
        {"index": -1},
        {"index": 70_000},
        {"para_id": 2**32},
        {"lane": ""},
    ):
        yield "downward-messages", key, write("validator.DownwardMessage", message | changed)
    block = {"lane": lane, "block": 3, "parent_number": None, "block_hash": None, "candidates": 0, "requests": 0}
    block |= {"downward": 0, "included": [], "timed_out": [], "session_change": None}
    change = {"outgoing": [], "onboarding": [], "new_config": None, "limits": {"no_such_limit": bytes(16)}}
    for changed in ({"parent_number": 3}, {"candidates": 70_000}, {"session_change": change}):
        yield "blocks", key, write("validator.Block", block | changed)
    yield "blocks", other[0].encode(), write("validator.Block", block | {"lane": other[0], "session_change": change})
    yield (
        "candidates",
        other[0].encode(),
        good[:10] + bytes([len(other[0]) * 2]) + other[0].encode() + good[11 + len(lane) :],
    )
    yield "candidates", key, other[1][:10] + bytes([len(lane) * 2]) + key + other[1][11 + len(other[0]) :]
    yield "downward-messages", b"stranger", downward("stranger", 1, 0)
    yield "candidates", b"stranger", b"\xff"
    yield "candidates", None, b"\xfe\xff"
    yield "candidates", b"\xff\xfe", b"\xfd"


def early(lane: str, last: int) -> Iterator[Row]:
    """Yield records that arrive before their block record, which will show that one of them has no place."""
    key = lane.encode()
    yield "downward-messages", key, downward(lane, last + 1, 5)
    yield "downward-messages", key, downward(lane, last + 3, 0)


def next_block(lane: str, last: int) -> Iterator[Row]:
    """Yield a block that lacks one of two messages and has another message twice."""
    key = lane.encode()
    yield "blocks", key, block_record(lane, last + 1, downward=2)
    yield "downward-messages", key, downward(lane, last + 1, 0)
    yield "downward-messages", key, downward(lane, last + 1, 0)


def refused(lane: str, last: int, good: bytes) -> Iterator[Row]:
    """Yield records that a lane refuses after `next_block`; ``good`` is a candidate that it has executed."""
    key = lane.encode()
    yield "candidates", key, good[:-1] + bytes([good[-1] ^ 1])
    yield "blocks", key, block_record(lane, last, candidates=3)
    yield "downward-messages", key, downward(lane, last, 999)
    yield "downward-messages", key, downward(lane, 0, 0)
    yield "blocks", key, block_record(lane, last + 1, downward=9)
    yield "blocks", key, block_record(lane, last + 8, parent_number=last - 1)
    yield "blocks", key, block_record(lane, last + 9, parent_number=last)
    yield "downward-messages", key, downward(lane, last + 1, 2)
    yield "downward-messages", key, downward(lane, last + 1, 0, msg="bb")
