# SPDX-License-Identifier: Apache-2.0
"""A compact way to write conformance scenarios: each call adds an input with its expected result.

Expected results come from xcmp_channels.txt and xcmp_rules 1.1 and 1.2, never from the program. Roots come from the definitions of
`xcmp_world`.
"""

from __future__ import annotations

from typing import Any

from xcmp_world import digest, le32

from validator.testing import ScenarioWriter

Json = dict[str, Any]

A, B, C, D = 2000, 2001, 2002, 2003
NOBODY = 99
BALANCE = 1000
ALL = 2**32 - 1
R1, R2, R3 = "11" * 32, "22" * 32, "33" * 32

BASE_CONFIG: Json = {
    "xcmp_channel_capacity": 8,
    "xcmp_max_outbound_channels": 3,
    "xcmp_sender_deposit": 100,
    "xcmp_recipient_deposit": 50,
    "xcmp_open_request_ttl": 2,
    "xcmp_condemned_sessions": 3,
    "watermark_regime": "tuple",
}
"""Tiny limits, so each is reached. Limits of the same kind differ, so none is mistaken for another."""


def row_root(*columns: tuple[int, int, str | None]) -> str:
    """Return the root of a row of ``(recipient, last_updated, message_root)`` with at most three columns, computed step by step."""
    leaves = []
    for recipient, last_updated, root in columns:
        option = b"\x00" if root is None else b"\x01" + bytes.fromhex(root)
        leaves.append(digest(b"\x00xcmp/cst\x01" + le32(recipient) + le32(last_updated) + option))
    top = leaves[0]
    if len(leaves) > 1:
        top = digest(b"\x01" + top + leaves[1])
    if len(leaves) > 2:
        top = digest(b"\x01" + top + leaves[2])
    return digest(b"\x02xcmp/cst\x01" + le32(len(leaves)) + top).hex()


def column(last_updated: int = 0, message_root: str | None = None) -> Json:
    """Return a column of ``cst``."""
    return {"last_updated": last_updated, "message_root": message_root}


def metadata(recipient: int, sender_deposit: int = 100, recipient_deposit: int = 50, capacity: int = 8) -> Json:
    """Return a column of ``cmt``."""
    return {
        "recipient": recipient,
        "capacity": capacity,
        "sender_deposit": sender_deposit,
        "recipient_deposit": recipient_deposit,
    }


def request(sender: int, recipient: int, confirmed: bool = False, age: int = 0) -> Json:
    """Return an entry of ``open_requests``."""
    return {"sender": sender, "recipient": recipient, "confirmed": confirmed, "age": age}


def closing(initiator: int, sender: int, recipient: int) -> Json:
    """Return an entry of ``close_requests``."""
    return {"initiator": initiator, "sender": sender, "recipient": recipient}


def condemned(sender: int, recipient: int, n: int, counter: int) -> Json:
    """Return an entry of ``condemned``."""
    return {"sender": sender, "recipient": recipient, "n": n, "counter": counter}


def balance(free: int) -> Json:
    """Return the account of a para that was onboarded with `BALANCE`."""
    return {"free": free, "reserved": BALANCE - free}


class Trace(ScenarioWriter):
    """One scenario under construction."""

    protocol = "xcmp"
    base_config = BASE_CONFIG
    base_paras = dict.fromkeys((A, B, C, D), BALANCE)

    def open(self, *channels: tuple[int, int]) -> Trace:
        """Open channels: requests in block 1, session change in block 2."""
        self.at(1)
        for sender, recipient in channels:
            self.init(sender, recipient)
        for index, (_, recipient) in enumerate(channels):
            self.accept(recipient, index)
        return self.at(2).session()

    def init(self, origin: int, recipient: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Request a channel."""
        return self.add(
            "requests", {"kind": "init_open_channel", "origin": origin, "recipient": recipient}, error, fields
        )

    def accept(self, origin: int, index: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Accept the request at a position."""
        return self.add("requests", {"kind": "accept_open_channel", "origin": origin, "index": index}, error, fields)

    def accept_from(self, origin: int, sender: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Accept the request of a sender."""
        return self.add("requests", {"kind": "accept_open_channel", "origin": origin, "sender": sender}, error, fields)

    def close(self, origin: int, sender: int, index: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Request that the channel at a column be closed."""
        item = {"kind": "close_channel", "origin": origin, "sender": sender, "index": index}
        return self.add("requests", item, error, fields)

    def close_to(self, origin: int, sender: int, recipient: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Request that the channel between two paras be closed."""
        item = {"kind": "close_channel", "origin": origin, "sender": sender, "recipient": recipient}
        return self.add("requests", item, error, fields)

    def candidate(
        self,
        para: int,
        watermark: tuple[int, int] | None = None,
        bitfield: str = "",
        message_root: str | None = None,
        error: str | None = None,
        /,
        *,
        relay_parent: int | None = None,
        enact_at: int | None = None,
        **fields: Any,
    ) -> Trace:
        """Add a candidate. The default watermark covers everything up to the previous block."""
        block = self.step["block"]
        item: Json = {
            "para_id": para,
            "watermark": list(watermark or (block - 1, ALL)),
            "bitfield": bitfield,
            "message_root": message_root,
        }
        if relay_parent is not None:
            item["relay_parent_number"] = relay_parent
        if enact_at is not None:
            item["enact_at_block"] = enact_at
        return self.add("candidates", item, error, fields)


def as_record(item: Json) -> Json:
    """Return a step's entry in the records' shape: the call has its own name, the watermark has named parts."""
    if item.get("kind") == "accept_open_channel":
        if "sender" in item:
            return item | {"kind": "accept_open_channel_from"}
        return {"request_index" if name == "index" else name: value for name, value in item.items()}
    if item.get("kind") == "close_channel":
        if "recipient" in item:
            return item | {"kind": "close_channel_to"}
        return {"column_index" if name == "index" else name: value for name, value in item.items()}
    if "watermark" in item:
        return item | {"watermark": dict(zip(("block", "para"), item["watermark"], strict=True))}
    return item
