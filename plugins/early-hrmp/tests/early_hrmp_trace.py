# SPDX-License-Identifier: Apache-2.0
"""A short way to write conformance scenarios down: every call adds an input together with what must come of it.

What must come of it is written from early_hrmp.txt and xcmp_rules 1.3, never taken from the program.
"""

from __future__ import annotations

from typing import Any

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
"""Tiny limits, no two of a kind alike, so that every one of them is reached and none is taken for another."""

ORDER = ("requests", "downward", "candidates", "session_change")


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
        interpretation: tuple[str, str, str] | None = None,
    ) -> None:
        group, _, name = identifier.partition("/")
        self.json: Json = {
            "id": f"early-hrmp/{identifier}",
            "name": name.replace("-", "_"),
            "group": group,
            "source": source,
            "rule": rule,
            "protocol": "early-hrmp",
            "needs": list(needs),
            "config": {**BASE_CONFIG, **(config or {})},
            "genesis_paras": [{"para_id": para, "balance": (balances or {}).get(para, BALANCE)} for para in paras],
        }
        if interpretation is not None:
            number, question, chosen = interpretation
            self.json["interpretation"] = [{"id": number, "question": question, "chosen": chosen, "alternatives": []}]
        self.json["steps"] = []

    def at(self, block: int) -> Trace:
        """Start a step."""
        self.json["steps"].append({"block": block})
        return self

    def open(self, *channels: tuple[int, int]) -> Trace:
        """Open channels: requests in block 1, the session changes in block 2."""
        self.at(1)
        for at, (sender, recipient) in enumerate(channels):
            self.init(sender, recipient).accept(recipient, at)
        return self.at(2).session()

    def init(self, origin: int, recipient: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Ask for a channel."""
        return self._add(
            "requests", {"kind": "init_open_channel", "origin": origin, "recipient": recipient}, error, fields
        )

    def accept(self, origin: int, index: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Accept the request at an index."""
        return self._add("requests", {"kind": "accept_open_channel", "origin": origin, "index": index}, error, fields)

    def accept_from(self, origin: int, sender: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Accept the request of a sender."""
        return self._add("requests", {"kind": "accept_open_channel", "origin": origin, "sender": sender}, error, fields)

    def close(self, origin: int, sender: int, recipient: int, error: str | None = None, /, **fields: Any) -> Trace:
        """Ask for a channel to be closed."""
        request = {"kind": "close_channel", "origin": origin, "sender": sender, "recipient": recipient}
        return self._add("requests", request, error, fields)

    def downward(self, para: int, msg: str) -> Trace:
        """Queue a message of the relay chain."""
        return self._add("downward", {"para_id": para, "msg": msg}, None, {})

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
            change["onboarding"] = [{"para_id": para, "balance": balance} for para, balance in onboarding.items()]
        if new_config:
            change["new_config"] = new_config
        self.json["steps"][-1]["session_change"] = change
        return self

    def state(self, **keys: Any) -> Trace:
        """Assert state keys after the step; names of channels and paras are written out by the caller or given as numbers."""
        expect = self.json["steps"][-1].setdefault("expect", {})
        expect.setdefault("state", {}).update({key: _named(value) for key, value in keys.items()})
        return self

    def _add(self, key: str, item: Json, error: str | None, fields: Json) -> Trace:
        step = self.json["steps"][-1]
        later = [other for other in ORDER[ORDER.index(key) + 1 :] if other in step]
        assert not later, f"{self.json['id']}: {key} come before {later[0]} in a step"
        step.setdefault(key, []).append(item)
        result = {"ok": True} if error is None else {"ok": False, "error": {"kind": error, **fields}}
        step.setdefault("expect", {}).setdefault(key, []).append(result)
        return self


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


def _named(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name(*key) if isinstance(key, tuple) else str(key): member for key, member in value.items()}


def as_record(item: Json) -> Json:
    """Return an entry of a step in the JSON form of its record: a request to accept is named in one of two calls."""
    if item.get("kind") != "accept_open_channel":
        return item
    if "sender" in item:
        return item | {"kind": "accept_open_channel_from"}
    return {"kind": item["kind"], "origin": item["origin"], "request_index": item["index"]}
