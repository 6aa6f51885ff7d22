# SPDX-License-Identifier: Apache-2.0
"""A compact way to write conformance scenarios: each call adds an input with its expected result.

Expected results come from xcmp_networking.txt and xcmp_rules 1.4, never from the program. Roots of bodies come from `tree_root`, which
follows the definition in xcmp_rules 1.1 step by step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from validator.testing import ScenarioWriter

Json = dict[str, Any]

A, B, C, D = 2000, 2001, 2002, 2003
NOBODY = 99
R1, R2, R3 = "11" * 32, "22" * 32, "33" * 32
EVERYBODY = 2**32 - 1

BASE_CONFIG: Json = {
    "max_block_bytes": 1000,
    "max_channel_messages": 2,
    "max_ingress_messages": None,
    "intra_block": "free",
    "require_bodies": False,
    "channels": "fixed",
}
"""Tiny bounds, so each is reached."""
ALL_PAIRS = [[sender, recipient] for sender in (A, B, C, D) for recipient in (A, B, C, D) if sender != recipient]


def digest(data: bytes) -> bytes:
    """Return the BLAKE2b-256 digest."""
    return hashlib.blake2b(data, digest_size=32).digest()


def tree_root(*payloads: bytes) -> str:
    """Return the root of at most three payloads of fewer than 64 bytes each, computed step by step."""
    leaves = [digest(b"\x00xcmp/msg\x01" + bytes((4 * len(payload),)) + payload) for payload in payloads]
    top = digest(b"")
    if leaves:
        top = leaves[0]
    for leaf in leaves[1:]:
        top = digest(b"\x01" + top + leaf)
    return digest(b"\x02xcmp/msg\x01" + len(leaves).to_bytes(4, "little") + top).hex()


def mark(block: int, *acked: int) -> Json:
    """Return a partial watermark of the state."""
    return {"block": block, "acked": list(acked)}


class Trace(ScenarioWriter):
    """One scenario under construction. Channels are fixed and lead from everybody to everybody, unless it says otherwise."""

    protocol = "xcmp-network"
    base_config = BASE_CONFIG
    base_paras = dict.fromkeys((A, B, C, D), 1000)

    def __init__(self, identifier: str, rule: str, *, channels: Iterable[list[int]] = ALL_PAIRS, **more: Any) -> None:
        super().__init__(identifier, rule, **more)
        if self.json["config"]["channels"] == "fixed":
            self.json["config"]["open_channels"] = list(channels)

    def candidate(
        self,
        para: int,
        outbox: Iterable[Any] = (),
        acks: Iterable[tuple[int, int]] = (),
        error: str | None = None,
        /,
        *,
        relay_parent: int | None = None,
        enact_at: int | None = None,
        channel_part: Json | None = None,
        **fields: Any,
    ) -> Trace:
        """Add a candidate. Its messages are recipients, or ``(recipient, root, size)``."""
        messages = [each if isinstance(each, tuple) else (each, R1, 1) for each in outbox]
        item: Json = {
            "para_id": para,
            "outbox": [{"recipient": recipient, "root": root, "size": size} for recipient, root, size in messages],
            "acks": [list(name) for name in acks],
            **(channel_part or {}),
        }
        if relay_parent is not None:
            item["relay_parent_number"] = relay_parent
        if enact_at is not None:
            item["enact_at_block"] = enact_at
        return self.add("candidates", item, error, fields)

    def send(self, block: int, recipient: int, *senders: int) -> Trace:
        """Let paras send to a recipient in a block."""
        self.at(block)
        for sender in senders:
            self.candidate(sender, [recipient])
        return self

    def report(
        self,
        sender: int,
        recipient: int,
        sent_at: int,
        root: str,
        size: int,
        error: str | None = None,
        /,
        **fields: Any,
    ) -> Trace:
        """Report a body by its root and size."""
        item = {"kind": "report_body", "recipient": recipient, "sender": sender, "sent_at": sent_at}
        return self.add("requests", item | {"root": root, "size": size}, error, fields)

    def body(
        self,
        sender: int,
        recipient: int,
        sent_at: int,
        payloads: Iterable[bytes],
        error: str | None = None,
        /,
        **fields: Any,
    ) -> Trace:
        """Deliver a body, after the candidates of a step."""
        item = {
            "sender": sender,
            "recipient": recipient,
            "sent_at": sent_at,
            "payloads": [each.hex() for each in payloads],
        }
        self.step.setdefault("bodies", []).append(item)
        result = {"ok": True} if error is None else {"ok": False, "error": {"kind": error, **fields}}
        self.step.setdefault("expect", {}).setdefault("bodies", []).append(result)
        return self

    def ask(self, kind: str, origin: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Request something about a channel; arguments are those without a leading underscore, the error's fields those with one."""
        arguments = {name: value for name, value in fields.items() if not name.startswith("_")}
        wrong = {name[1:]: value for name, value in fields.items() if name.startswith("_")}
        return self.add("requests", {"kind": kind, "origin": origin, **arguments}, error, wrong)


def as_record(item: Json) -> Json:
    """Return a step's entry in the records' shape: the call has its own name, the watermark has named parts."""
    if item.get("kind") == "accept_open_channel" and "sender" in item:
        return item | {"kind": "accept_open_channel_from"}
    if item.get("kind") == "close_channel" and "recipient" in item:
        return item | {"kind": "close_channel_to"}
    if isinstance(item.get("watermark"), list):
        return item | {"watermark": dict(zip(("block", "para"), item["watermark"], strict=True))}
    return item
