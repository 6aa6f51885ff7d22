# SPDX-License-Identifier: Apache-2.0
"""A naive model of the protocol: a slow, direct implementation of the text, in the JSON shapes of the traces.

It shares no code with the rules. All messages are one list, which is scanned; queues and views are computed from it. What was acknowledged
is another one. The naive model of XCMP channels opens and closes channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from validator_simulators import Json, accepted, failed
from validator_simulators.xcmp.model import NaiveXcmp

REMEMBERED: Final = 512
"""Acknowledged messages of a recipient that can be distinguished from messages that were never sent (N-I12)."""
Name = tuple[int, int]


class NaiveNetwork(NaiveXcmp):
    """One relay chain. ``config`` also has the keys of this protocol; ``channels`` are the fixed ones."""

    def __init__(
        self,
        config: Json,
        paras: Iterable[Json],
        *,
        unlimited: bool,
        on_inclusion: bool,
        channels: Iterable[tuple[int, int]] = (),
    ) -> None:
        super().__init__(config, paras, unlimited=unlimited, on_inclusion=on_inclusion)
        self.composed = config["channels"] == "xcmp"
        self.modes: Json = dict(config)
        self.fixed = sorted(channels)
        self.messages: list[Json] = []
        self.acked: dict[int, list[Name]] = {}
        self.marks: dict[int, tuple[int, list[int]]] = {}
        self.enacted: list[int] = []
        self.ingress_events: list[tuple[str, int, int, int, str, int]] = []

    # --- computed on demand ---

    def inbox(self, recipient: int) -> list[Name]:
        """Return the unread ``(block, sender)`` of a recipient in queue order."""
        return sorted((each["block"], each["sender"]) for each in self.messages if each["recipient"] == recipient)

    def visible(self, recipient: int, parent: int) -> list[Name]:
        """Return what was sent to a recipient up to a relay parent and is unread."""
        return [name for name in self.inbox(recipient) if name[0] <= parent]

    def message(self, recipient: int, name: Name) -> Json | None:
        """Return an unread message."""
        found = [
            each for each in self.messages if (each["recipient"], each["block"], each["sender"]) == (recipient, *name)
        ]
        return found[0] if found else None

    def capacity(self, sender: int, recipient: int) -> int | None:
        """Return how many unread messages a channel may hold, or None if there is no such channel."""
        if self.composed:
            channel = self.channel(sender, recipient)
            return None if channel is None else int(channel["capacity"])
        return int(self.config["max_channel_messages"]) if (sender, recipient) in self.fixed else None

    def links(self, sender: int) -> list[Json]:
        """Return the channels of a sender as objects with ``sender``, ``recipient`` and ``capacity``, in the order of its columns."""
        if self.composed:
            return self.row(sender)
        capacity = int(self.config["max_channel_messages"])
        return [{"sender": by, "recipient": to, "capacity": capacity} for by, to in self.fixed if by == sender]

    def used(self, sender: int, recipient: int) -> int:
        """Return the number of a channel's unread messages."""
        return len([name for name in self.inbox(recipient) if name[1] == sender])

    def was_acked(self, recipient: int, name: Name) -> bool:
        """Return whether a message was acknowledged, as far as that is remembered."""
        names = self.acked.get(recipient, [])
        watermark, senders = self.marks.get(recipient, (0, []))
        if name[0] > watermark or (name[0] == watermark and name[1] in senders):
            return name[0] <= watermark
        forgotten = names[:-REMEMBERED]
        return name in names or (bool(forgotten) and name[0] <= forgotten[-1][0])

    def state(self) -> Json:
        """Return all state keys of the traces."""
        channels = super().state()
        messages = sorted(self.messages, key=lambda each: (each["block"], each["sender"], each["recipient"]))
        recipients = sorted({each["recipient"] for each in messages})
        senders = sorted({each["sender"] for each in messages})
        return {
            **channels,
            "channel_watermarks": channels["watermarks"],
            "ingress": {str(para): [list(name) for name in self.inbox(para)] for para in recipients},
            "egress": {
                str(para): sorted([each["block"], each["recipient"]] for each in messages if each["sender"] == para)
                for para in senders
            },
            "watermarks": {
                str(para): {"block": block, "acked": sorted(acked)}
                for para, (block, acked) in sorted(self.marks.items())
            },
            "bodies_held": [[each["block"], each["sender"], each["recipient"]] for each in messages if each["held"]],
        }

    # --- a block ---

    def begin_block(self, block: int, included: Iterable[Json], timed_out: Iterable[Json]) -> list[Json]:
        """Start a block: enact and drop the candidates that its record names. Return a result for each."""
        if block != self.now:
            self.enacted = []
        self.now, self.events, self.ingress_events = block, [], []
        results = [self.become(entry, "Inclusion") for entry in included]
        return results + [self.become(entry, "Timeout") for entry in timed_out]

    def become(self, entry: Json, kind: str) -> Json:
        """Enact or drop a pending candidate."""
        para = entry["para_id"]
        for item in self.pending:
            if item["candidate"]["para_id"] == para and entry["backed_at"] in (None, item["backed_at"]):
                if kind == "Inclusion" and para in self.enacted:
                    return failed("Candidate/AlreadyEnactedInBlock", para=para, block=self.now)
                self.pending.remove(item)
                return accepted(self.enact(item["candidate"]) if kind == "Inclusion" else [])
        return failed(f"{kind}/CandidateNotPending", para_id=para)

    def request(self, request: Json) -> Json:
        """Apply a channel request or the report of a body."""
        if request["kind"] != "report_body" and not self.composed:
            return failed("RequestNotInForce", request=request["kind"])
        return super().request(request)

    def report_body(self, recipient: int, sender: int, sent_at: int, root: str, size: int) -> Json:
        """Note that somebody holds a body."""
        place = {"sender": sender, "recipient": recipient, "sent_at": sent_at}
        message = self.message(recipient, (sent_at, sender))
        if message is None:
            return failed("Body/NotExpected", **place)
        if size != message["size"]:
            return failed("Body/SizeMismatch", declared=message["size"], actual=size)
        if root != message["root"]:
            return failed("Body/RootMismatch", expected=message["root"])
        if message["held"]:
            return failed("Body/Duplicate", **place)
        message["held"] = True
        return accepted()

    # --- candidates ---

    def judge(self, candidate: Json) -> Json:
        """Return the verdict on a candidate without applying it."""
        para = candidate["para_id"]
        if para not in self.paras:
            return failed("Candidate/UnknownPara", para=para)
        if self.has_candidate(para):
            return failed("Candidate/AlreadyEnactedInBlock", para=para, block=self.now)
        if self.composed:
            result = super().judge(self.channel_part(candidate))
            if not result["ok"]:
                return result
        result = self.judge_outbox(para, candidate)
        return result if not result["ok"] else self.judge_acks(para, candidate)

    def has_candidate(self, para: int) -> bool:
        """Return whether a para already has a candidate in this block."""
        if self.on_inclusion:
            return any(item["candidate"]["para_id"] == para and item["backed_at"] == self.now for item in self.pending)
        return para in self.enacted

    def channel_part(self, candidate: Json) -> Json:
        """Return the part of a candidate that concerns XCMP channels."""
        last = self.watermarks.get(candidate["para_id"], [0, 0])
        mark = candidate.get("watermark")
        root = candidate.get("message_root")
        return candidate | {
            "watermark": list(last) if mark is None else mark,
            "bitfield": candidate.get("bitfield") or "",
            "message_root": root,
        }

    def judge_outbox(self, para: int, candidate: Json) -> Json:
        """Judge the messages that a candidate sends."""
        outbox = candidate["outbox"]
        recipients = [message["recipient"] for message in outbox]
        for idx in range(1, len(recipients)):
            if recipients[idx] < recipients[idx - 1]:
                return failed("Outbox/NotSorted", idx=idx)
            if recipients[idx] == recipients[idx - 1]:
                return failed("Outbox/DuplicateRecipient", idx=idx, recipient=recipients[idx])
        for idx, recipient in enumerate(recipients):
            if self.capacity(para, recipient) is None:
                return failed("Outbox/NoSuchChannel", idx=idx, channel=f"{para}->{recipient}")
        for idx, recipient in enumerate(recipients):
            count, limit = self.used(para, recipient) + 1, self.capacity(para, recipient)
            if limit is not None and count > limit:
                return failed("Outbox/ChannelFull", idx=idx, channel=f"{para}->{recipient}", count=count, limit=limit)
            total, bound = len(self.inbox(recipient)) + 1, self.config.get("max_ingress_messages")
            if bound is not None and total > bound:
                return failed("Outbox/IngressFull", idx=idx, recipient=recipient, count=total, limit=bound)
        size, most = sum(message["size"] for message in outbox), self.config["max_block_bytes"]
        if size > most:
            return failed("Outbox/BytesExceeded", total=size, limit=most)
        if self.composed:
            bits = candidate.get("bitfield") or ""
            marked = [channel["recipient"] for bit, channel in zip(bits, self.row(para), strict=False) if bit == "1"]
            if sorted(marked) != recipients:
                return failed("Outbox/BitfieldMismatch")
        return accepted()

    def judge_acks(self, para: int, candidate: Json) -> Json:
        """Judge what a candidate acknowledges."""
        parent, inbox = candidate["relay_parent_number"], self.inbox(para)
        named: list[Name] = []
        for block, sender in candidate["acks"]:
            place = {"block": block, "sender": sender}
            if block > parent:
                return failed("Ack/AheadRelayParent", **place)
            if (block, sender) in named:
                return failed("Ack/AlreadyAcked", **place)
            if (block, sender) not in inbox:
                known = self.was_acked(para, (block, sender))
                return failed("Ack/AlreadyAcked" if known else "Ack/UnknownMessage", **place)
            named.append((block, sender))
        visible = self.visible(para, parent)
        if visible and not named:
            return failed("Ack/NoProgress", pending=[list(name) for name in visible])
        taken = self.covered(inbox, named)
        if not taken:
            return accepted()
        top = max(taken)[0]
        missing = [list(name) for name in visible if name[0] < top and name not in taken]
        if missing:
            return failed("Ack/Gap", block=top, missing=missing)
        if self.modes.get("intra_block") == "prefix":
            at_top = [sender for block, sender in inbox if block == top]
            chosen = [sender for block, sender in taken if block == top]
            if at_top[: len(chosen)] != chosen:
                return failed("Ack/OutOfOrder", block=top, expected=at_top[: len(chosen)])
        if self.modes.get("require_bodies"):
            for block, sender in taken:
                message = self.message(para, (block, sender))
                if message is not None and not message["held"]:
                    return failed("Ack/BodyMissing", block=block, sender=sender)
        return accepted()

    @staticmethod
    def covered(inbox: list[Name], named: list[Name]) -> list[Name]:
        """Return the unread messages that acknowledgements stand for: each with everything earlier from the same sender."""
        return [
            (block, sender) for block, sender in inbox if any(block <= other and sender == by for other, by in named)
        ]

    def enact(self, candidate: Json) -> list[Json]:
        """Enact a candidate, and return the range of downward messages that its para has received by it."""
        para = candidate["para_id"]
        self.enacted.append(para)
        if self.composed:
            received = super().enact(self.channel_part(candidate))
        else:
            received = self.take_downward(para, candidate["relay_parent_number"])
        self.acknowledge(para, [(block, sender) for block, sender in candidate["acks"]])
        for message in candidate["outbox"]:
            recipient = message["recipient"]
            taken = self.message(recipient, (self.now, para)) is not None
            if self.capacity(para, recipient) is None or taken:
                continue
            self.messages.append(
                {**message, "block": self.now, "sender": para, "held": False},
            )
            self.tell("queued", self.messages[-1])
            if self.marks.get(recipient, (0, []))[0] > self.now:
                self.marks[recipient] = self.now, [s for b, s in self.acked.get(recipient, []) if b == self.now]
        return received

    def acknowledge(self, para: int, named: list[Name]) -> None:
        """Take the acknowledged messages out of the queue and move the watermark."""
        taken = self.covered(self.inbox(para), named)
        for name in taken:
            message = self.message(para, name)
            assert message is not None
            self.messages.remove(message)
            self.tell("acknowledged", message)
            self.acked.setdefault(para, []).append(name)
        if not taken:
            return
        top, before = taken[-1][0], self.marks.get(para, (0, []))
        if top < before[0]:
            return
        if any(block == top for block, _ in self.inbox(para)):
            also = before[1] if before[0] == top else []
            self.marks[para] = top, sorted({*also, *(sender for block, sender in taken if block == top)})
        else:
            self.marks[para] = top + 1, []

    # --- the session ---

    def session_change(self, change: Json) -> None:
        """Change the session; messages of channels that are gone leave the queues, and so do the queues of paras that leave."""
        outgoing, pending = sorted(set(change.get("outgoing", ()))), self.pending
        before = len(self.events)
        super().session_change(change)
        if self.composed:
            gone = [(event[1], event[2]) for event in self.events[before:] if event[0] == "closed"]
        else:
            self.pending = pending
            gone = []
            for para in outgoing:
                gone += [(sender, recipient) for sender, recipient in self.fixed if recipient == para]
                gone += [(sender, recipient) for sender, recipient in self.fixed if sender == para]
                self.fixed = [pair for pair in self.fixed if para not in pair]
        for sender, recipient in gone:
            for message in [m for m in self.messages if (m["sender"], m["recipient"]) == (sender, recipient)]:
                self.messages.remove(message)
                self.tell("removed", message)
            block, acked = self.marks.get(recipient, (0, []))
            if acked and not any(name[0] == block for name in self.inbox(recipient)):
                self.marks[recipient] = block + 1, []
        for para in outgoing:
            self.marks.pop(para, None)
            self.acked.pop(para, None)

    def tell(self, event: str, message: Json) -> None:
        """Record an ingress event."""
        names = ("recipient", "sender", "block", "root", "size")
        recipient, sender, block, root, size = (message[name] for name in names)
        self.ingress_events.append((event, recipient, sender, block, root, size))
