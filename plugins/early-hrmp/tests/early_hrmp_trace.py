# SPDX-License-Identifier: Apache-2.0
"""A compact way to write conformance scenarios: each call adds an input with its expected result.

Expected results come from early_hrmp.txt and xcmp_rules 1.3, never from the program.
"""

from __future__ import annotations

from typing import Any

from validator.testing import ScenarioWriter

Json = dict[str, Any]

A, B, C, D, E = 2000, 2001, 2002, 2003, 2004
NOBODY = 99
BALANCE = 100

BASE_CONFIG: Json = {
    "hrmp_channel_max_places": 3,
    "hrmp_channel_max_size": 20,
    "hrmp_max_outbound_channels": 4,
    "hrmp_sender_deposit": 10,
    "hrmp_recipient_deposit": 7,
    "hrmp_open_request_ttl": 2,
    "dmq_watermark_rule": "land",
}
"""Tiny limits, so each is reached. Limits of the same kind differ, so none is mistaken for another."""


class Trace(ScenarioWriter):
    """One scenario under construction."""

    protocol = "early-hrmp"
    base_config = BASE_CONFIG
    base_paras = dict.fromkeys((A, B, C, D), BALANCE)

    def open(self, *channels: tuple[int, int]) -> Trace:
        """Open channels: requests in block 1, the session changes in block 2."""
        self.at(1)
        for at, (sender, recipient) in enumerate(channels):
            self.init(sender, recipient).accept(recipient, at)
        return self.at(2).session()

    def init(self, origin: int, recipient: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Ask for a channel."""
        return self.add(
            "requests", {"kind": "init_open_channel", "origin": origin, "recipient": recipient}, error, fields
        )

    def accept(self, origin: int, index: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Accept the request at an index."""
        return self.add("requests", {"kind": "accept_open_channel", "origin": origin, "index": index}, error, fields)

    def accept_from(self, origin: int, sender: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Accept the request of a sender."""
        return self.add("requests", {"kind": "accept_open_channel", "origin": origin, "sender": sender}, error, fields)

    def close(self, origin: int, sender: int, recipient: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Ask for a channel to be closed."""
        request = {"kind": "close_channel", "origin": origin, "sender": sender, "recipient": recipient}
        return self.add("requests", request, error, fields)

    def candidate(
        self,
        para: int,
        watermark: int,
        send: dict[int, str] | list[tuple[int, int, str]] | None = None,
        /,
        *,
        relay_parent: int | None = None,
        enact_at: int | None = None,
        error: str | None = None,
        **fields: Any,
    ) -> Trace:
        """Include a candidate; ``send`` is payload by recipient, or whole messages."""
        messages = (
            [(para, recipient, payload) for recipient, payload in send.items()] if isinstance(send, dict) else send
        )
        item: Json = {"para_id": para, "dmq_watermark": watermark}
        item["hrmp_messages"] = [
            {"sender": sender, "recipient": recipient, "payload": payload}
            for sender, recipient, payload in messages or ()
        ]
        if relay_parent is not None:
            item["relay_parent_number"] = relay_parent
        if enact_at is not None:
            item["enact_at_block"] = enact_at
        return self.add("candidates", item, error, fields)


def channel(places: int = 0, size: int = 0, *, sealed: bool = False, deposits: tuple[int, int] = (10, 7)) -> Json:
    """Return a channel as the state shows it."""
    sender, recipient = deposits
    return {
        "sender_deposit": sender,
        "recipient_deposit": recipient,
        "used_places": places,
        "used_bytes": size,
        "sealed": sealed,
    }


def request(sender: int, recipient: int, *, confirmed: bool = False, age: int = 0) -> Json:
    """Return an open request as the state shows it."""
    return {"sender": sender, "recipient": recipient, "confirmed": confirmed, "age": age}


def close_request(initiator: int, sender: int, recipient: int) -> Json:
    """Return a close request as the state shows it."""
    return {"initiator": initiator, "sender": sender, "recipient": recipient}


def hrmp(sent_at: int, sender: int, data: str) -> Json:
    """Return a queued message of a para as the state shows it."""
    return {"sent_at": sent_at, "kind": "hrmp", "sender": sender, "data": data}


def relay(sent_at: int, data: str) -> Json:
    """Return a queued message of the relay chain as the state shows it."""
    return {"sent_at": sent_at, "kind": "relay", "data": data}


def balance(reserved: int, total: int = BALANCE) -> Json:
    """Return an account of which this much is held back."""
    return {"free": total - reserved, "reserved": reserved}


def name(sender: int, recipient: int) -> str:
    """Return a channel's name."""
    return f"{sender}->{recipient}"


def as_record(item: Json) -> Json:
    """Return an entry of a step in the JSON form of its record: a request to accept is named in one of two calls."""
    if item.get("kind") != "accept_open_channel":
        return item
    if "sender" in item:
        return item | {"kind": "accept_open_channel_from"}
    return {"kind": item["kind"], "origin": item["origin"], "request_index": item["index"]}
