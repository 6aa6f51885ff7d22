# SPDX-License-Identifier: Apache-2.0
"""A naive model of early HRMP: a slow, direct implementation of the text.

It shares no code with the rules and has a different design. A message is one object, both in its recipient's queue and in its channel's
list. A channel is an object in a list. Every count, size and set is computed by a scan when it is needed. Inputs, results and the state
have the JSON shapes of the traces. Numbers in brackets refer to early_hrmp.txt; H-nn are readings of xcmp_rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from validator_simulators import Json, accepted, failed, message_range, next_head


class NaiveEarlyHrmp:
    """One relay chain. Callers drive it: `begin_block`, then inputs, then `session_change` if the block has one."""

    def __init__(
        self, config: Json, genesis_paras: list[Json], *, unlimited: bool = False, waits: bool = False
    ) -> None:
        self.config = dict(config)
        self.unlimited = unlimited
        self.waits = waits  # for availability: candidates are enacted on inclusion
        self.now = 0
        self.session = 0
        self.paras: set[int] = set()
        self.free: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.channels: list[Json] = []  # sender, recipient, paid: [by sender, by recipient], sealed, messages
        self.requests: list[Json] = []  # sender, recipient, confirmed, age, paid
        self.closing: list[Json] = []  # initiator, sender, recipient
        self.queues: dict[int, list[Json]] = {}  # sent_at, kind, sender, data, channel
        self.heads: dict[int, tuple[int, bytes]] = {}
        self.taken: dict[int, int] = {}  # messages that have left a queue
        self.watermarks: dict[int, int] = {}
        self.pending: list[Json] = []  # backed_at, candidate
        self.events: list[tuple[Any, ...]] = []
        for para in genesis_paras:
            self._onboard(para)

    # --- computed on demand ---

    def channel(self, sender: int, recipient: int) -> Json | None:
        """Return the channel of a pair, or None."""
        found = [each for each in self.channels if (each["sender"], each["recipient"]) == (sender, recipient)]
        assert len(found) <= 1
        return found[0] if found else None

    def egress(self, para: int) -> list[int]:
        """Return the recipients of a para's channels, sealed ones included, ascending."""
        return sorted(each["recipient"] for each in self.channels if each["sender"] == para)

    def landings(self, para: int) -> list[int]:
        """Return the blocks with messages in a para's queue, ascending."""
        return sorted({message["sent_at"] for message in self.queues.get(para, [])})

    def state(self) -> Json:
        """Return all state keys of the traces."""
        shown = sorted(self.channels, key=lambda each: (each["sender"], each["recipient"]))
        accounts = sorted(para for para in self.free if para in self.paras or self.free[para] or self.reserved[para])
        return {
            "paras": sorted(self.paras),
            "channels": {
                f"{each['sender']}->{each['recipient']}": {
                    "sender_deposit": each["paid"][0],
                    "recipient_deposit": each["paid"][1],
                    "used_places": len(each["messages"]),
                    "used_bytes": _size(each),
                    "sealed": each["sealed"],
                }
                for each in shown
            },
            "dmq": {str(para): [_shown(message) for message in queue] for para, queue in sorted(self.queues.items())},
            "watermarks": {str(para): block for para, block in sorted(self.watermarks.items())},
            "open_requests": [
                {key: each[key] for key in ("sender", "recipient", "confirmed", "age")} for each in self.requests
            ],
            "close_requests": list(self.closing),
            "balances": {str(para): {"free": self.free[para], "reserved": self.reserved[para]} for para in accounts},
        }

    def para_headroom(self, para: int) -> tuple[Any, ...]:
        """Return validity, number of waiting messages, watermark, and the valid next watermarks other than the relay parent."""
        if para not in self.paras:
            return (False, 0, None, ())
        last = self.watermarks.get(para)
        landings = [block for block in self.landings(para) if last is None or block > last]
        return (True, len(self.queues.get(para, [])), last, tuple(landings[:64]))

    def channel_headroom(self, sender: int, recipient: int) -> tuple[Any, ...]:
        """Return whether a channel exists, its places left and its bytes left."""
        channel = self.channel(sender, recipient)
        if channel is None or channel["sealed"]:
            return (channel is not None, 0, 0)
        places = self.config["hrmp_channel_max_places"] - len(channel["messages"])
        return (True, max(places, 0), max(self.config["hrmp_channel_max_size"] - _size(channel), 0))

    # --- blocks ---

    def begin_block(self, now: int, included: list[Json], timed_out: list[Json]) -> list[Json]:
        """Start a block: enact and drop the candidates that its record names. Return a result for each."""
        self.now, self.events = now, []
        results = []
        for kind, entries in (("Inclusion", included), ("Timeout", timed_out)):
            for entry in entries:
                item = self._take(entry)
                if item is None:
                    results.append(failed(f"{kind}/CandidateNotPending", para_id=entry["para_id"]))
                    continue
                received = self.enact(item["candidate"])[1] if kind == "Inclusion" else []
                results.append(accepted(received))
        return results

    def _take(self, entry: Json) -> Json | None:
        for item in self.pending:
            if item["candidate"]["para_id"] == entry["para_id"] and entry["backed_at"] in (None, item["backed_at"]):
                self.pending.remove(item)
                return item
        return None

    # --- requests ---

    def request(self, request: Json) -> Json:
        """Apply a channel request."""
        if request["kind"] == "init_open_channel":
            return self._init(request["origin"], request["recipient"])
        if request["kind"] == "close_channel":
            return self._close(request["origin"], request["sender"], request["recipient"])
        index = request.get("index")
        if index is None:
            pairs = [(each["sender"], each["recipient"]) for each in self.requests]
            pair = (request["sender"], request["origin"])
            if pair not in pairs:
                return failed("Accept/NoSuchRequest", channel=f"{pair[0]}->{pair[1]}")
            index = pairs.index(pair)
        return self._accept(request["origin"], index)

    def _init(self, sender: int, recipient: int) -> Json:
        name = f"{sender}->{recipient}"
        if sender not in self.paras:
            return failed("Open/InvalidSender", sender=sender)
        if recipient not in self.paras:
            return failed("Open/InvalidRecipient", recipient=recipient)
        if sender == recipient:
            return failed("Open/ToSelf", para=sender)
        if self.channel(sender, recipient):
            return failed("Open/AlreadyExists", channel=name)
        if any((each["sender"], each["recipient"]) == (sender, recipient) for each in self.requests):
            return failed("Open/AlreadyRequested", channel=name)
        count = len([each for each in [*self.channels, *self.requests] if each["sender"] == sender])
        if not count < self.config["hrmp_max_outbound_channels"]:
            return failed("Open/LimitExceeded", count=count, limit=self.config["hrmp_max_outbound_channels"])
        deposit = self.config["hrmp_sender_deposit"]
        poor = self._pay(sender, deposit)
        if poor:
            return poor
        self.requests.append(
            {"sender": sender, "recipient": recipient, "confirmed": False, "age": 0, "paid": [deposit, 0]}
        )
        self._emit("requested", self.requests[-1], deposit, 0)
        return accepted()

    def _accept(self, origin: int, index: int) -> Json:
        if index not in range(len(self.requests)):
            return failed("Accept/NoSuchRequest", index=index)
        request = self.requests[index]
        if request["recipient"] != origin:
            return failed("Accept/NotRecipient", index=index, origin=origin, recipient=request["recipient"])
        if request["confirmed"]:
            return failed("Accept/AlreadyConfirmed", index=index)
        deposit = self.config["hrmp_recipient_deposit"]
        poor = self._pay(origin, deposit)
        if poor:
            return poor
        request["confirmed"] = True
        request["paid"][1] = deposit
        self._emit("confirmed", request, 0, deposit)
        return accepted()

    def _close(self, origin: int, sender: int, recipient: int) -> Json:
        name = f"{sender}->{recipient}"
        channel = self.channel(sender, recipient)
        if channel is None:
            return failed("Close/NoSuchChannel", channel=name)
        if channel["sealed"]:
            return failed("Close/ChannelSealed", channel=name)
        if origin not in {sender, recipient}:
            return failed("Close/Unauthorized", origin=origin, channel=name)
        if any((each["sender"], each["recipient"]) == (sender, recipient) for each in self.closing):
            return failed("Close/AlreadyUnderway", channel=name)
        self.closing.append({"initiator": origin, "sender": sender, "recipient": recipient})
        self._emit("close_requested", channel, 0, 0)
        return accepted()

    def _pay(self, para: int, deposit: int) -> Json | None:
        free = self.free.setdefault(para, 0)
        self.reserved.setdefault(para, 0)
        if not self.unlimited:
            if free < deposit:
                return failed("InsufficientBalance", para=para, needed=deposit, free=free)
            self.free[para] -= deposit
        self.reserved[para] += deposit
        return None

    def _pay_back(self, para: int, deposit: int) -> None:
        self.reserved[para] -= deposit
        if not self.unlimited:
            self.free[para] += deposit

    # --- messages ---

    def downward(self, para: int, msg: str) -> tuple[int, int, bytes]:
        """Queue a message of the relay chain and return its queue position."""
        return self._put(para, {"sent_at": self.now, "kind": "relay", "data": msg})

    def candidate(self, candidate: Json) -> Json:
        """Accept or reject a candidate. An accepted one is enacted or waits for inclusion."""
        refusal = self._refusal(candidate)
        if refusal:
            return refusal
        if self.waits:
            self.pending.append({"backed_at": self.now, "candidate": candidate})
            return accepted()
        return accepted(self.enact(candidate)[1])

    def _refusal(self, candidate: Json) -> Json | None:
        para, messages = candidate["para_id"], candidate["hrmp_messages"]
        if para not in self.paras:
            return failed("Candidate/UnknownPara", para=para)
        recipients = [message["recipient"] for message in messages]
        for idx in range(1, len(recipients)):
            if recipients[idx] < recipients[idx - 1]:
                return failed("Outbound/NotSorted", idx=idx)
            if recipients[idx] == recipients[idx - 1]:
                return failed("Outbound/DuplicateRecipient", idx=idx, recipient=recipients[idx])
        for idx, message in enumerate(messages):
            name = f"{para}->{message['recipient']}"
            if message["sender"] != para:
                return failed("Outbound/SenderMismatch", idx=idx, sender=message["sender"], para=para)
            channel = self.channel(para, message["recipient"])
            if channel is None:
                return failed("Outbound/NoSuchChannel", idx=idx, channel=name)
            if channel["sealed"]:
                return failed("Outbound/ChannelSealed", idx=idx, channel=name)
            count, limit = len(channel["messages"]) + 1, self.config["hrmp_channel_max_places"]
            if not count <= limit:
                return failed("Outbound/CapacityExceeded", idx=idx, count=count, limit=limit)
            size, limit = _size(channel) + len(message["payload"]) // 2, self.config["hrmp_channel_max_size"]
            if not size <= limit:
                return failed("Outbound/TotalSizeExceeded", idx=idx, total_size=size, limit=limit)
        return self._watermark_refusal(para, candidate)

    def _watermark_refusal(self, para: int, candidate: Json) -> Json | None:
        watermark, parent = candidate["dmq_watermark"], candidate.get("relay_parent_number")
        parent = self.now - 1 if parent is None else parent
        if para in self.watermarks and not watermark > self.watermarks[para]:
            return failed("Watermark/AdvancementRule", new_watermark=watermark, last_watermark=self.watermarks[para])
        if not watermark <= parent:
            return failed("Watermark/AheadRelayParent", new_watermark=watermark, relay_parent_number=parent)
        if watermark not in [parent, *self.landings(para)]:
            return failed("Watermark/LandsOnBlockWithNoMessages", new_watermark=watermark)
        return None

    def enact(self, candidate: Json) -> tuple[list[tuple[int, int, bytes]], list[Json]]:
        """Enact a candidate; return the queue positions of its messages, and the range of those that its para has received by it."""
        para, watermark = candidate["para_id"], candidate["dmq_watermark"]
        queue = self.queues.pop(para, [])
        passed = [message["data"] for message in queue if message["sent_at"] <= watermark]
        received = [message_range(None, self.taken.get(para, 0), passed)] if passed else []
        self.taken[para] = self.taken.get(para, 0) + len(passed)
        for message in queue:
            if message["sent_at"] <= watermark and message["kind"] == "hrmp":
                # a removed channel loses the message too, without any visible effect (H-I05, H-I11)
                message["channel"]["messages"] = [
                    each for each in message["channel"]["messages"] if each is not message
                ]
        left = [message for message in queue if message["sent_at"] > watermark]
        if left:
            self.queues[para] = left
        places = []
        for message in candidate["hrmp_messages"]:
            channel = self.channel(para, message["recipient"])
            if channel is not None:
                entry = {
                    "sent_at": self.now,
                    "kind": "hrmp",
                    "sender": para,
                    "data": message["payload"],
                    "channel": channel,
                }
                channel["messages"].append(entry)
                places.append(self._put(message["recipient"], entry))
        self.watermarks[para] = watermark
        return places, received

    def _put(self, para: int, entry: Json) -> tuple[int, int, bytes]:
        self.queues.setdefault(para, []).append(entry)
        count, head = self.heads.get(para, (0, b"\0" * 32))
        self.heads[para] = (count + 1, next_head(head, self.now, bytes.fromhex(entry["data"])))
        return (para, *self.heads[para])

    # --- sessions ---

    def session_change(self, change: Json) -> None:
        """Change the session: offboard [1], open [2], close [3], clean [4]."""
        self.session += 1
        outgoing = sorted(set(change.get("outgoing") or []))
        for para in outgoing:
            self._offboard(para)
        for para in change.get("onboarding") or []:
            self._onboard(para)
        for request in list(self.requests):
            self._settle(request, outgoing)
        for request in self.closing:
            channel = self.channel(request["sender"], request["recipient"])
            if channel is not None and channel["messages"]:
                channel["sealed"] = True
                self._emit("sealed", channel, 0, 0, "requested")
            elif channel is not None:
                self._remove(channel, "requested")
        self.closing = []
        for channel in sorted(self.channels, key=lambda each: (each["sender"], each["recipient"])):
            if channel["sealed"] and not channel["messages"]:
                self._remove(channel, "drained")
        self.config |= change.get("new_config") or {}

    def _settle(self, request: Json, outgoing: list[int]) -> None:
        pair = {request["sender"], request["recipient"]}
        reason = None
        if request["confirmed"]:
            if not (pair <= self.paras and pair.isdisjoint(outgoing)):
                reason = ("request_dropped", "offboarded")
        else:
            request["age"] += 1
            if request["age"] < self.config["hrmp_open_request_ttl"]:
                return
            reason = ("request_expired", "expired")
        self.requests.remove(request)
        if reason is None:
            ends = {"sender": request["sender"], "recipient": request["recipient"]}
            self.channels.append({**ends, "paid": request["paid"], "sealed": False, "messages": []})
            self._emit("opened", request, 0, 0)
            return
        for para, deposit in zip((request["sender"], request["recipient"]), request["paid"], strict=True):
            if deposit:
                self._pay_back(para, deposit)
        self._emit(reason[0], request, -request["paid"][0], -request["paid"][1], reason[1])

    def _onboard(self, para: Json) -> None:
        number = para["para_id"]
        self.paras.add(number)
        self.free.setdefault(number, 0)
        self.reserved.setdefault(number, 0)
        if not self.unlimited:
            self.free[number] += para.get("balance", 0)

    def _offboard(self, para: int) -> None:
        self.paras.discard(para)
        inbound = sorted((each for each in self.channels if each["recipient"] == para), key=lambda each: each["sender"])
        outbound = sorted(
            (each for each in self.channels if each["sender"] == para), key=lambda each: each["recipient"]
        )
        for channel in inbound + outbound:
            self._remove(channel, "offboarded")
        waiting = [message["data"] for message in self.queues.get(para, [])]
        dropped = [message_range(None, self.taken.get(para, 0), waiting)] if waiting else []
        if para in self.heads:
            self._emit("messages_dropped", {"sender": para, "recipient": para}, 0, 0, "offboarded", dropped)
        for owned in (self.queues, self.heads, self.taken, self.watermarks):
            owned.pop(para, None)

    def _remove(self, channel: Json, reason: str) -> None:
        self.channels = [each for each in self.channels if each is not channel]
        self._pay_back(channel["sender"], channel["paid"][0])
        self._pay_back(channel["recipient"], channel["paid"][1])
        self._emit("closed", channel, -channel["paid"][0], -channel["paid"][1], reason)

    def _emit(
        self, event: str, of: Json, sender: int, recipient: int, reason: str | None = None, dropped: Sequence[Json] = ()
    ) -> None:
        ranges = tuple(tuple(each.values()) for each in dropped)
        self.events.append((event, of["sender"], of["recipient"], sender, recipient, self.session, reason, ranges))


def _size(channel: Json) -> int:
    return sum(len(message["data"]) // 2 for message in channel["messages"])


def _shown(message: Json) -> Json:
    return {key: message[key] for key in ("sent_at", "kind", "sender", "data") if key in message}
