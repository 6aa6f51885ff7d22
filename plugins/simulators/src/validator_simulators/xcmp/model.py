# SPDX-License-Identifier: Apache-2.0
"""A naive model of the protocol: a slow, direct implementation of the rules, in the JSON shapes of the traces.

It shares no code with the rules. Its state is one list of channels in order of opening. Rows, roots, counts and positions are computed by a
scan when they are needed. Row roots: xcmp_rules 1.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from validator_simulators import Json, accepted, blake2b_256, failed, message_range, next_head


def le32(number: int) -> bytes:
    """Return a u32 in little endian."""
    return number.to_bytes(4, "little")


def tree_hash(leaves: list[bytes]) -> bytes:
    """Return the root of one or more leaf hashes, in the shape of RFC 9162 2.1.1."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return blake2b_256(b"\x01" + tree_hash(leaves[:split]) + tree_hash(leaves[split:]))


def row_root(columns: list[tuple[int, int, str | None]]) -> str:
    """Return the root, in hex, of a row of one or more ``(recipient, last_updated, message_root)``."""
    leaves = []
    for recipient, last_updated, root in columns:
        option = b"\x00" if root is None else b"\x01" + bytes.fromhex(root)
        leaves.append(blake2b_256(b"\x00xcmp/cst\x01" + le32(recipient) + le32(last_updated) + option))
    return blake2b_256(b"\x02xcmp/cst\x01" + le32(len(leaves)) + tree_hash(leaves)).hex()


class NaiveXcmp:
    """One relay chain. Callers drive it step by step, in the order of a block."""

    def __init__(self, config: dict[str, int], paras: Iterable[Json], *, unlimited: bool, on_inclusion: bool) -> None:
        self.config = dict(config)
        self.unlimited = unlimited
        self.on_inclusion = on_inclusion
        self.now = 0
        self.session = 0
        self.paras: list[int] = []
        self.free: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.channels: list[Json] = []
        self.requests: list[Json] = []
        self.closing: list[Json] = []
        self.condemned: list[Json] = []
        self.watermarks: dict[int, list[int]] = {}
        self.dmq: dict[int, list[Json]] = {}
        self.dmq_heads: dict[int, bytes] = {}
        self.dmq_taken: dict[int, int] = {}  # messages that have left a queue
        self.pending: list[Json] = []
        self.events: list[tuple[Any, ...]] = []
        for para in paras:
            self.onboard(para)

    # --- computed on demand ---

    def row(self, sender: int) -> list[Json]:
        """Return the channels of a sender, in the order of its columns."""
        return [channel for channel in self.channels if channel["sender"] == sender]

    def channel(self, sender: int, recipient: int) -> Json | None:
        """Return the channel of a pair, or None."""
        found = [channel for channel in self.row(sender) if channel["recipient"] == recipient]
        return found[0] if found else None

    def unread(self, para: int) -> list[list[int]]:
        """Return the ``[block, sender]`` of each message to a para beyond its watermark."""
        mark = self.watermarks.get(para)
        return sorted(
            [channel["last_updated"], channel["sender"]]
            for channel in self.channels
            if channel["recipient"] == para
            and channel["message_root"] is not None
            and (mark is None or [channel["last_updated"], channel["sender"]] > mark)
        )

    def is_condemned(self, sender: int, recipient: int) -> bool:
        """Return whether a channel is condemned."""
        return any((entry["sender"], entry["recipient"]) == (sender, recipient) for entry in self.condemned)

    def root(self, sender: int) -> str:
        """Return the root of a sender's row, which must have a column."""
        return row_root(
            [(channel["recipient"], channel["last_updated"], channel["message_root"]) for channel in self.row(sender)]
        )

    def state(self) -> Json:
        """Return all state keys of the traces."""
        senders = sorted({channel["sender"] for channel in self.channels})
        names = ("recipient", "capacity", "sender_deposit", "recipient_deposit")
        known = sorted({*self.paras, *self.free, *self.reserved})
        return {
            "paras": sorted(self.paras),
            "cst": {
                str(para): [
                    {key: channel[key] for key in ("last_updated", "message_root")} for channel in self.row(para)
                ]
                for para in senders
            },
            "cmt": {
                str(para): [{key: channel[key] for key in names} for channel in self.row(para)] for para in senders
            },
            "cst_roots": {str(para): self.root(para) for para in senders},
            "watermarks": {str(para): mark for para, mark in sorted(self.watermarks.items())},
            "open_requests": [
                {key: request[key] for key in ("sender", "recipient", "confirmed", "age")} for request in self.requests
            ],
            "close_requests": self.closing,
            "condemned": [
                {
                    **{key: entry[key] for key in ("sender", "recipient")},
                    "n": [channel["recipient"] for channel in self.row(entry["sender"])].index(entry["recipient"]),
                    "counter": entry["counter"],
                }
                for entry in self.condemned
            ],
            "dmq": {str(para): queue for para, queue in sorted(self.dmq.items()) if queue},
            "dmq_heads": {str(para): head.hex() for para, head in sorted(self.dmq_heads.items())},
            "balances": {
                str(para): {"free": self.free.get(para, 0), "reserved": self.reserved.get(para, 0)}
                for para in known
                if para in self.paras or self.free.get(para) or self.reserved.get(para)
            },
        }

    # --- a block ---

    def begin_block(self, block: int, included: Iterable[Json], timed_out: Iterable[Json]) -> list[Json]:
        """Start a block: enact and drop the candidates that its record names. Return a result for each."""
        self.now = block
        self.events = []
        results = []
        for enacts, kind, entries in ((True, "Inclusion", included), (False, "Timeout", timed_out)):
            for entry in entries:
                found = [
                    item
                    for item in self.pending
                    if item["candidate"]["para_id"] == entry["para_id"]
                    and entry["backed_at"] in (None, item["backed_at"])
                ]
                if not found:
                    results.append(failed(f"{kind}/CandidateNotPending", para_id=entry["para_id"]))
                    continue
                self.pending.remove(found[0])
                results.append(accepted(self.enact(found[0]["candidate"]) if enacts else []))
        return results

    def downward(self, para: int, msg: str) -> None:
        """Queue a message of the relay chain."""
        self.dmq.setdefault(para, []).append({"sent_at": self.now, "msg": msg})
        self.dmq_heads[para] = next_head(self.dmq_heads.get(para, bytes(32)), self.now, bytes.fromhex(msg))

    # --- requests ---

    def request(self, request: Json) -> Json:
        """Apply a channel request. Accepting and closing name their target by index or by the other end."""
        result: Json = getattr(self, request["kind"])(**{name: request[name] for name in request if name != "kind"})
        return result

    def init_open_channel(self, origin: int, recipient: int) -> Json:
        """Request a channel."""
        name = f"{origin}->{recipient}"
        own = [request for request in self.requests if request["sender"] == origin]
        if origin not in self.paras:
            return failed("Open/InvalidSender", sender=origin)
        if self.channel(origin, recipient):
            return failed("Open/AlreadyExists", channel=name)
        if any(request["recipient"] == recipient for request in own):
            return failed("Open/AlreadyRequested", channel=name)
        count, limit = len(self.row(origin)) + len(own), self.config["xcmp_max_outbound_channels"]
        if count >= limit:
            return failed("Open/LimitExceeded", count=count, limit=limit)
        if origin == recipient:
            return failed("Open/ToSelf", para=origin)
        if recipient not in self.paras:
            return failed("Open/InvalidRecipient", recipient=recipient)
        deposit = self.config["xcmp_sender_deposit"]
        if not self.take(origin, deposit):
            return failed("InsufficientBalance", para=origin, needed=deposit, free=self.free.get(origin, 0))
        self.requests.append(
            {
                "sender": origin,
                "recipient": recipient,
                "confirmed": False,
                "age": 0,
                "sender_deposit": deposit,
                "recipient_deposit": 0,
            }
        )
        self.emit("requested", origin, recipient, deposit, 0)
        return accepted()

    def accept_open_channel(self, origin: int, index: int | None = None, sender: int | None = None) -> Json:
        """Confirm a request."""
        if index is None:
            pairs = [(request["sender"], request["recipient"]) for request in self.requests]
            if (sender, origin) not in pairs:
                return failed("Accept/NoSuchRequest", channel=f"{sender}->{origin}")
            index = pairs.index((sender, origin))
        if index >= len(self.requests):
            return failed("Accept/NoSuchRequest", index=index)
        request = self.requests[index]
        if request["recipient"] != origin:
            return failed("Accept/NotRecipient", index=index, origin=origin, recipient=request["recipient"])
        if request["confirmed"]:
            return failed("Accept/AlreadyConfirmed", index=index)
        deposit = self.config["xcmp_recipient_deposit"]
        if not self.take(origin, deposit):
            return failed("InsufficientBalance", para=origin, needed=deposit, free=self.free.get(origin, 0))
        request |= {"confirmed": True, "recipient_deposit": deposit}
        self.emit("confirmed", request["sender"], origin, 0, deposit)
        return accepted()

    def close_channel(self, origin: int, sender: int, index: int | None = None, recipient: int | None = None) -> Json:
        """Request that a channel be closed."""
        if index is None:
            recipients = [channel["recipient"] for channel in self.row(sender)]
            if recipient not in recipients:
                return failed("Close/NoSuchChannel", channel=f"{sender}->{recipient}")
            index = recipients.index(recipient)
        if index >= len(self.row(sender)):
            return failed("Close/NoSuchChannel", sender=sender, index=index)
        recipient = self.row(sender)[index]["recipient"]
        name = f"{sender}->{recipient}"
        if origin not in (sender, recipient):
            return failed("Close/Unauthorized", origin=origin, channel=name)
        if any((entry["sender"], entry["recipient"]) == (sender, recipient) for entry in self.closing):
            return failed("Close/AlreadyUnderway", channel=name)
        if self.is_condemned(sender, recipient):
            return failed("Close/AlreadyCondemned", channel=name)
        self.closing.append({"initiator": origin, "sender": sender, "recipient": recipient})
        self.emit("close_requested", sender, recipient, 0, 0)
        return accepted()

    # --- candidates ---

    def candidate(self, candidate: Json) -> Json:
        """Accept or reject a candidate. An accepted one is enacted or waits for inclusion."""
        result = self.judge(candidate)
        if result["ok"] and self.on_inclusion:
            self.pending.append({"backed_at": self.now, "candidate": candidate})
        elif result["ok"]:
            return accepted(self.enact(candidate))
        return result

    def judge(self, candidate: Json) -> Json:
        """Return the verdict on a candidate without applying it."""
        para, bits, mark = candidate["para_id"], candidate["bitfield"], candidate["watermark"]
        parent = candidate["relay_parent_number"]
        if para not in self.paras:
            return failed("Candidate/UnknownPara", para=para)
        row = self.row(para)
        if len(bits) > len(row):
            return failed("Bitfield/TooLong", length=len(bits), row_length=len(row))
        for index, bit in enumerate(bits):
            if bit == "1" and self.is_condemned(para, row[index]["recipient"]):
                return failed("Bitfield/ChannelCondemned", index=index, recipient=row[index]["recipient"])
        if "1" in bits and candidate["message_root"] is None:
            return failed("Bitfield/MissingMessageRoot")
        if mark[0] > parent:
            return failed("Watermark/AheadRelayParent", new_watermark=mark, relay_parent_number=parent)
        last = self.watermarks.get(para)
        if last is not None and mark < last:
            return failed("Watermark/Regressed", new_watermark=mark, last_watermark=last)
        unread = [place for place in self.unread(para) if place[0] <= parent]
        if last is not None and mark == last and unread:
            return failed("Watermark/NotAdvanced", last_watermark=last, pending=unread)
        return accepted()

    def enact(self, candidate: Json) -> list[Json]:
        """Enact a candidate, and return the range of downward messages that its para has received by it."""
        para = candidate["para_id"]
        for bit, channel in zip(candidate["bitfield"], self.row(para), strict=False):
            if bit == "1":
                channel |= {"last_updated": self.now, "message_root": candidate["message_root"]}
        self.watermarks[para] = list(candidate["watermark"])
        block = candidate["watermark"][0]
        return self.take_downward(para, block)

    def take_downward(self, para: int, block: int) -> list[Json]:
        """Take the downward messages up to a block out of the queue, and return their range."""
        passed = [message["msg"] for message in self.dmq.get(para, []) if message["sent_at"] <= block]
        received = [message_range(None, self.dmq_taken.get(para, 0), passed)] if passed else []
        self.dmq_taken[para] = self.dmq_taken.get(para, 0) + len(passed)
        self.dmq[para] = [message for message in self.dmq.get(para, []) if message["sent_at"] > block]
        return received

    # --- the session ---

    def session_change(self, change: Json) -> None:
        """Change the session. Pending candidates are dropped."""
        self.session += 1
        self.pending = []
        outgoing = sorted(set(change.get("outgoing", ())))
        for para in outgoing:
            for channel in sorted(
                self.channels,
                key=lambda each: (each["recipient"] != para, each["recipient"] == para and each["sender"]),
            ):
                if para in (channel["sender"], channel["recipient"]):
                    self.remove(channel, "offboarded")
            if para in self.paras:
                self.paras.remove(para)
            waiting = [message["msg"] for message in self.dmq.get(para, [])]
            dropped = [message_range(None, self.dmq_taken.get(para, 0), waiting)] if waiting else []
            if para in self.dmq_heads:
                self.emit("messages_dropped", para, para, 0, 0, "offboarded", dropped)
            for storage in (self.watermarks, self.dmq, self.dmq_heads, self.dmq_taken):
                storage.pop(para, None)
        for para in change.get("onboarding", ()):
            self.onboard(para)

        kept = []
        for request in self.requests:
            sender, recipient = request["sender"], request["recipient"]
            deposits = request["sender_deposit"], request["recipient_deposit"]
            if not request["confirmed"]:
                request["age"] += 1
                if request["age"] < self.config["xcmp_open_request_ttl"]:
                    kept.append(request)
                else:
                    self.give(sender, deposits[0])
                    self.emit("request_expired", sender, recipient, -deposits[0], 0, "expired")
            elif {sender, recipient} <= set(self.paras) - set(
                outgoing
            ):  # a para that is offboarded and onboarded again counts as offboarded
                self.channels.append(
                    {
                        "sender": sender,
                        "recipient": recipient,
                        "capacity": self.config["xcmp_channel_capacity"],
                        "sender_deposit": deposits[0],
                        "recipient_deposit": deposits[1],
                        "last_updated": 0,
                        "message_root": None,
                    }
                )
                self.emit("opened", sender, recipient, 0, 0)
            else:
                self.give(sender, deposits[0])
                self.give(recipient, deposits[1])
                self.emit("request_dropped", sender, recipient, -deposits[0], -deposits[1], "offboarded")
        self.requests = kept

        for entry in self.closing:
            if self.channel(entry["sender"], entry["recipient"]):
                counter = self.config["xcmp_condemned_sessions"]
                self.condemned.append({"sender": entry["sender"], "recipient": entry["recipient"], "counter": counter})
        self.closing = []
        for entry in self.condemned:
            entry["counter"] = max(entry["counter"] - 1, 0)
        for entry in list(self.condemned):
            sender, recipient = entry["sender"], entry["recipient"]
            [channel] = [each for each in self.row(sender) if each["recipient"] == recipient]
            place = [channel["last_updated"], sender]
            if place not in self.unread(recipient):
                self.remove(channel, "requested")
            elif entry["counter"] == 0:
                column = le32(sender) + le32(recipient) + le32(channel["last_updated"])
                self.downward(recipient, column.hex() + channel["message_root"])
                self.remove(channel, "unread")
        self.config |= change.get("new_config") or {}

    def onboard(self, para: Json) -> None:
        """Register a para."""
        if para["para_id"] not in self.paras:
            self.paras.append(para["para_id"])
        if not self.unlimited:
            self.free[para["para_id"]] = self.free.get(para["para_id"], 0) + para["balance"]

    def remove(self, channel: Json, reason: str) -> None:
        """Remove a channel and return its deposits."""
        sender, recipient = channel["sender"], channel["recipient"]
        self.channels = [each for each in self.channels if each is not channel]
        self.condemned = [
            entry for entry in self.condemned if (entry["sender"], entry["recipient"]) != (sender, recipient)
        ]
        self.give(sender, channel["sender_deposit"])
        self.give(recipient, channel["recipient_deposit"])
        self.emit("closed", sender, recipient, -channel["sender_deposit"], -channel["recipient_deposit"], reason)

    # --- accounts, events ---

    def take(self, para: int, amount: int) -> bool:
        """Reserve an amount. Return whether the balance covered it."""
        if not self.unlimited:
            if self.free.get(para, 0) < amount:
                return False
            self.free[para] = self.free.get(para, 0) - amount
        self.reserved[para] = self.reserved.get(para, 0) + amount
        return True

    def give(self, para: int, amount: int) -> None:
        """Return a reserved amount to the free balance."""
        if not self.unlimited:
            self.free[para] = self.free.get(para, 0) + amount
        self.reserved[para] = self.reserved.get(para, 0) - amount

    def emit(
        self,
        event: str,
        sender: int,
        recipient: int,
        mine: int,
        theirs: int,
        reason: str | None = None,
        dropped: Sequence[Json] = (),
    ) -> None:
        """Record an event."""
        ranges = tuple(tuple(each.values()) for each in dropped)
        self.events.append((event, sender, recipient, mine, theirs, reason, ranges))
