# SPDX-License-Identifier: Apache-2.0
"""A short way to write conformance scenarios down: every call adds an input together with what must come of it.

What must come of it is written from xcmp_channels.txt and xcmp_rules 1.1 and 1.2, never taken from the program; roots come from the
definitions of `xcmp_world`.
"""

from __future__ import annotations

from typing import Any

from xcmp_world import digest, le32

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
"""Tiny limits, no two of a kind alike, so that every one of them is reached and none is taken for another."""

ORDER = ("requests", "downward", "candidates", "session_change")


def row_root(*columns: tuple[int, int, str | None]) -> str:
    """Return the root of a row of ``(recipient, last_updated, message_root)`` of at most three columns, spelled out."""
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
    """Return the account of a para that brought `BALANCE`."""
    return {"free": free, "reserved": BALANCE - free}


class Trace:
    """One scenario under construction; `at` starts a step, the other methods add to it."""

    def __init__(
        self,
        identifier: str,
        rule: str,
        *,
        source: str,
        config: dict[str, int] | None = None,
        paras: tuple[int, ...] = (A, B, C, D),
        balances: dict[int, int] | None = None,
        needs: tuple[str, ...] = (),
        reading: tuple[str, str, str] | None = None,
    ) -> None:
        group, _, name = identifier.partition("/")
        self.json: Json = {
            "id": f"xcmp/{identifier}",
            "name": name.replace("-", "_"),
            "group": group,
            "source": source,
            "rule": rule,
            "protocol": "xcmp",
            "needs": list(needs),
            "config": {**BASE_CONFIG, **(config or {})},
            "genesis_paras": [{"para_id": para, "balance": (balances or {}).get(para, BALANCE)} for para in paras],
        }
        if reading is not None:
            number, question, chosen = reading
            self.json["interpretation"] = [{"id": number, "question": question, "chosen": chosen, "alternatives": []}]
        self.json["steps"] = []

    def at(self, block: int) -> Trace:
        """Start a step."""
        self.json["steps"].append({"block": block})
        return self

    def open(self, *channels: tuple[int, int]) -> Trace:
        """Open channels: requests in block 1, the session changes in block 2."""
        self.at(1)
        for sender, recipient in channels:
            self.init(sender, recipient)
        for index, (_, recipient) in enumerate(channels):
            self.accept(recipient, index)
        return self.at(2).session()

    def init(self, origin: int, recipient: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Ask for a channel."""
        return self._add(
            "requests", {"kind": "init_open_channel", "origin": origin, "recipient": recipient}, error, fields
        )

    def accept(self, origin: int, index: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Accept the request at a position."""
        return self._add("requests", {"kind": "accept_open_channel", "origin": origin, "index": index}, error, fields)

    def accept_from(self, origin: int, sender: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Accept the request of a sender."""
        return self._add("requests", {"kind": "accept_open_channel", "origin": origin, "sender": sender}, error, fields)

    def close(self, origin: int, sender: int, index: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Ask for the channel at a column to be closed."""
        item = {"kind": "close_channel", "origin": origin, "sender": sender, "index": index}
        return self._add("requests", item, error, fields)

    def close_to(self, origin: int, sender: int, recipient: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Ask for the channel between two paras to be closed."""
        item = {"kind": "close_channel", "origin": origin, "sender": sender, "recipient": recipient}
        return self._add("requests", item, error, fields)

    def downward(self, para: int, msg: str) -> Trace:
        """Queue a message of the relay chain."""
        return self._add("downward", {"para_id": para, "msg": msg}, None, {})

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
        """Include a candidate; where no watermark is given it is everything up to the block before."""
        block = self.json["steps"][-1]["block"]
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
        return self._add("candidates", item, error, fields)

    def session(
        self,
        *,
        outgoing: tuple[int, ...] = (),
        onboarding: dict[int, int] | None = None,
        new_config: dict[str, int] | None = None,
    ) -> Trace:
        """End the session with this block; ``onboarding`` is balance by para."""
        change: Json = {}
        if outgoing:
            change["outgoing"] = list(outgoing)
        if onboarding:
            change["onboarding"] = [{"para_id": para, "balance": amount} for para, amount in onboarding.items()]
        if new_config:
            change["new_config"] = new_config
        self.json["steps"][-1]["session_change"] = change
        return self

    def state(self, **keys: Any) -> Trace:
        """Say what the state is after this step; paras may be numbers."""
        expect = self.json["steps"][-1].setdefault("expect", {}).setdefault("state", {})
        for key, value in keys.items():
            expect[key] = {str(para): item for para, item in value.items()} if isinstance(value, dict) else value
        return self

    def _add(self, key: str, item: Json, error: str | None, fields: Json) -> Trace:
        step = self.json["steps"][-1]
        later = ORDER[ORDER.index(key) + 1 :]
        assert not any(name in step for name in later), f"{key} come before {later}: start another step"
        step.setdefault(key, []).append(item)
        result = {"ok": True} if error is None else {"ok": False, "error": {"kind": error, **fields}}
        step.setdefault("expect", {}).setdefault(key, []).append(result)
        return self


def as_record(item: Json) -> Json:
    """Return a step's entry as the records have it: a call by its own name, a watermark with names."""
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
