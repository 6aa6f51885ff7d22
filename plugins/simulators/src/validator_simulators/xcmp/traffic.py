# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain with XCMP channels, judged by the naive model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from validator_simulators import Draws, Json, LeastMet, ModelledChain, SimulationSettings, is_sleepy
from validator_simulators.xcmp.model import NaiveXcmp

NOBODY_FIRST: Final = 900_000
"""Ids from here up are never registered."""
CLOSING_PERCENT: Final = 15
"""Percentage of a well-behaved chain's requests. Those that neither close nor accept a channel open one."""
ACCEPTING_PERCENT: Final = 45
BY_INDEX_PERCENT: Final = 50
"""Percentage of targets that are named by index. The others are named by the para at the other end."""
_RECORD_NAMES: Final = {
    ("accept_open_channel", "sender"): "accept_open_channel_from",
    ("close_channel", "recipient"): "close_channel_to",
}
_INDEX_NAMES: Final = {"accept_open_channel": "request_index", "close_channel": "column_index"}


def request_record(request: Json) -> Json:
    """Return a request in the JSON form of its record. Naming a target by index or by a para are two different calls."""
    kind = request["kind"]
    if "index" in request:
        rest = {name: value for name, value in request.items() if name != "index"}
        return {**rest, _INDEX_NAMES[kind]: request["index"]}
    names = [name for (call, by), name in _RECORD_NAMES.items() if call == kind and by in request]
    return {**request, "kind": names[0] if names else kind}


class RequestTraffic:
    """Makes requests. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveXcmp, draws: Draws) -> None:
        self.model = model
        self.draws = draws
        self.ways: dict[str, Callable[[], Json | None]] = {
            "Open/InvalidSender": self._invalid_sender,
            "Open/InvalidRecipient": self._invalid_recipient,
            "Open/ToSelf": self._to_self,
            "Open/AlreadyExists": self._already_exists,
            "Open/AlreadyRequested": self._already_requested,
            "Open/LimitExceeded": self._limit_exceeded,
            "InsufficientBalance": self._insufficient_balance,
            "Accept/NoSuchRequest": self._no_such_request,
            "Accept/NotRecipient": self._not_recipient,
            "Accept/AlreadyConfirmed": self._already_confirmed,
            "Close/NoSuchChannel": self._no_such_channel,
            "Close/Unauthorized": self._unauthorized,
            "Close/AlreadyUnderway": self._already_underway,
            "Close/AlreadyCondemned": self._already_condemned,
        }
        self.errors = LeastMet(draws, self.ways)

    def play(self, *, breaks: bool) -> tuple[Json, Json] | None:
        """Return the record of the next request and the model's verdict, or None if no request is possible."""
        request = self._broken() if breaks else self._good()
        if request is None:
            return None
        result = self.model.request(request)
        self.errors.note(result)
        return request_record(request), result

    # --- calls ---

    def _init(self, origin: int, recipient: int) -> Json:
        return {"kind": "init_open_channel", "origin": origin, "recipient": recipient}

    def _accept(self, origin: int, request: Json) -> Json:
        call = {"kind": "accept_open_channel", "origin": origin}
        if origin == request["recipient"] and not self.draws.percent(BY_INDEX_PERCENT):
            return {**call, "sender": request["sender"]}
        return {**call, "index": self.model.requests.index(request)}

    def _close(self, origin: int, sender: int, recipient: int) -> Json:
        call = {"kind": "close_channel", "origin": origin, "sender": sender}
        if not self.draws.percent(BY_INDEX_PERCENT):
            return {**call, "recipient": recipient}
        return {**call, "index": [channel["recipient"] for channel in self.model.row(sender)].index(recipient)}

    # --- queries on the model ---

    def _anybody(self) -> int:
        return self.draws.choice(sorted(self.model.paras))

    def _nobody(self) -> int:
        return NOBODY_FIRST + self.draws.randrange(10)

    def _affords(self, para: int, end: str) -> bool:
        return self.model.unlimited or self.model.free.get(para, 0) >= self.model.config[f"xcmp_{end}_deposit"]

    def _roomy(self, *, rich: bool) -> list[int]:
        """Return the paras with room for another channel that can pay for it, or those that cannot."""
        limit = self.model.config["xcmp_max_outbound_channels"]
        return [para for para in self._below(limit) if self._affords(para, "sender") == rich]

    def _below(self, limit: int) -> list[int]:
        everything = [*self.model.channels, *self.model.requests]
        return [
            para
            for para in sorted(self.model.paras)
            if len([each for each in everything if each["sender"] == para]) < limit
        ]

    def _strangers(self, sender: int) -> list[int]:
        """Return the paras to which a sender has neither a channel nor a request."""
        everything = [*self.model.channels, *self.model.requests]
        known = [each["recipient"] for each in everything if each["sender"] == sender]
        return [para for para in sorted(self.model.paras) if para != sender and para not in known]

    def _unconfirmed(self, *, rich: bool) -> list[Json]:
        """Return the unconfirmed requests whose recipient can pay its deposit, or those whose recipient cannot."""
        waiting = [each for each in self.model.requests if not each["confirmed"]]
        return [each for each in waiting if self._affords(each["recipient"], "recipient") == rich]

    def _closable(self) -> list[Json]:
        """Return the channels that have no close request and are not condemned."""
        ending = [(each["sender"], each["recipient"]) for each in [*self.model.closing, *self.model.condemned]]
        return [each for each in self.model.channels if (each["sender"], each["recipient"]) not in ending]

    # --- good ones ---

    def _good(self) -> Json | None:
        if self.draws.percent(CLOSING_PERCENT):
            return self._good_close()
        if self.draws.percent(ACCEPTING_PERCENT):
            request = self.draws.one_of(self._unconfirmed(rich=True))
            return None if request is None else self._accept(request["recipient"], request)
        return self._init_to_stranger(self._roomy(rich=True))

    def _good_close(self) -> Json | None:
        """Close a channel. Channels with unread messages, which stay condemned for a while, are preferred."""
        there = self._closable()
        unread = [each for each in there if [each["last_updated"], each["sender"]] in self._unread(each)]
        channel = self.draws.one_of(unread if unread and self.draws.percent(70) else there)
        if channel is None:
            return None
        ends = channel["sender"], channel["recipient"]
        return self._close(self.draws.choice(ends), *ends)

    def _unread(self, channel: Json) -> list[list[int]]:
        return self.model.unread(channel["recipient"])

    def _init_to_stranger(self, senders: list[int]) -> Json | None:
        sender = self.draws.one_of(senders)
        recipient = None if sender is None else self.draws.one_of(self._strangers(sender))
        return None if sender is None or recipient is None else self._init(sender, recipient)

    # --- one way to break each rule ---

    def _broken(self) -> Json | None:
        made = (self.ways[kind]() for kind in self.errors.order())
        return next((request for request in made if request is not None), None)

    def _invalid_sender(self) -> Json | None:
        return self._init(self._nobody(), self.draws.choice((self._anybody(), self._nobody())))

    def _invalid_recipient(self) -> Json | None:
        sender = self.draws.one_of(self._below(self.model.config["xcmp_max_outbound_channels"]))
        return None if sender is None else self._init(sender, self._nobody())

    def _to_self(self) -> Json | None:
        para = self.draws.one_of(self._below(self.model.config["xcmp_max_outbound_channels"]))
        return None if para is None else self._init(para, para)

    def _already_exists(self) -> Json | None:
        channel = self.draws.one_of(self.model.channels)
        return None if channel is None else self._init(channel["sender"], channel["recipient"])

    def _already_requested(self) -> Json | None:
        request = self.draws.one_of([each for each in self.model.requests if each["sender"] in self.model.paras])
        return None if request is None else self._init(request["sender"], request["recipient"])

    def _limit_exceeded(self) -> Json | None:
        roomy = self._below(self.model.config["xcmp_max_outbound_channels"])
        return self._init_to_stranger([para for para in sorted(self.model.paras) if para not in roomy])

    def _insufficient_balance(self) -> Json | None:
        request = self.draws.one_of(self._unconfirmed(rich=False))
        if request is not None and self.draws.percent(50):
            return self._accept(request["recipient"], request)
        return self._init_to_stranger(self._roomy(rich=False))

    def _no_such_request(self) -> Json | None:
        call = {"kind": "accept_open_channel", "origin": self._anybody()}
        if self.draws.percent(BY_INDEX_PERCENT):
            return {**call, "index": len(self.model.requests) + self.draws.randrange(3)}
        asking = [each["sender"] for each in self.model.requests if each["recipient"] == call["origin"]]
        others = [para for para in [*sorted(self.model.paras), self._nobody()] if para not in asking]
        return {**call, "sender": self.draws.choice(others)}

    def _not_recipient(self) -> Json | None:
        request = self.draws.one_of(self.model.requests)
        if request is None:
            return None
        others = [para for para in sorted(self.model.paras) if para != request["recipient"]]
        return self._accept(self.draws.choice(others), request)

    def _already_confirmed(self) -> Json | None:
        request = self.draws.one_of([each for each in self.model.requests if each["confirmed"]])
        return None if request is None else self._accept(request["recipient"], request)

    def _no_such_channel(self) -> Json | None:
        sender = self._anybody()
        row = [channel["recipient"] for channel in self.model.row(sender)]
        call = {"kind": "close_channel", "origin": sender, "sender": sender}
        if self.draws.percent(BY_INDEX_PERCENT):
            return {**call, "index": len(row) + self.draws.randrange(3)}
        others = [para for para in [*sorted(self.model.paras), self._nobody()] if para not in row]
        return {**call, "recipient": self.draws.choice(others)}

    def _unauthorized(self) -> Json | None:
        channel = self.draws.one_of(self.model.channels)
        if channel is None:
            return None
        ends = channel["sender"], channel["recipient"]
        others = [para for para in [*sorted(self.model.paras), self._nobody()] if para not in ends]
        return self._close(self.draws.choice(others), *ends)

    def _already_underway(self) -> Json | None:
        return self._close_again(self.model.closing)

    def _already_condemned(self) -> Json | None:
        return self._close_again(self.model.condemned)

    def _close_again(self, entries: list[Json]) -> Json | None:
        entry = self.draws.one_of(entries)
        if entry is None:
            return None
        ends = entry["sender"], entry["recipient"]
        return self._close(self.draws.choice(ends), *ends)


EVERYBODY: Final = 2**32 - 1
"""As a watermark's para: it covers everything sent in the block."""
ROOT_BYTES: Final = 32
_WATERMARK_KINDS: Final = ("Watermark/AheadRelayParent", "Watermark/Regressed")


class CandidateTraffic:
    """Makes candidates. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveXcmp, draws: Draws, horizontal_per_100: int) -> None:
        self.model = model
        self.draws = draws
        self.horizontal_per_100 = horizontal_per_100
        self.ways: dict[str, Callable[[Json], bool]] = {
            "Candidate/UnknownPara": self._unknown_para,
            "Bitfield/TooLong": self._too_long,
            "Bitfield/ChannelCondemned": self._channel_condemned,
            "Bitfield/MissingMessageRoot": self._missing_message_root,
            "Watermark/AheadRelayParent": self._ahead_relay_parent,
            "Watermark/Regressed": self._regressed,
            "Watermark/NotAdvanced": self._not_advanced,
        }
        """By error: changes a good candidate so that it provokes the error. Returns whether it succeeded."""
        self.errors = LeastMet(draws, self.ways)

    def play(self, para: int, *, breaks: bool) -> tuple[Json, Json, tuple[str, ...]] | None:
        """Return a para's candidate record, the model's verdict, and the errors that it targets, or None if the para has no candidate."""
        candidate = self.good(para)
        kinds: tuple[str, ...] = ()
        if candidate is not None and breaks:
            kinds = self._break(candidate)
        if candidate is None:
            return None
        result = self.model.candidate(candidate)
        self.errors.note(result)
        return self._record(candidate), result, kinds

    def good(self, para: int) -> Json | None:
        """Return a candidate that will be accepted, or None if the para has no block left to build on."""
        draws = self.draws
        last = self.model.watermarks.get(para)
        parent = self.model.now - 1
        if draws.percent(15) and parent > (last or [0])[0]:
            parent -= 1
        if last is not None and last[0] > parent:
            return None
        bits = self._bits(para)
        return {
            "para_id": para,
            "relay_parent_number": parent,
            "watermark": self._watermark(para, parent),
            "bitfield": bits,
            "message_root": draws.hex(ROOT_BYTES) if "1" in bits or draws.percent(5) else None,
        }

    def _record(self, candidate: Json) -> Json:
        block, sender = candidate["watermark"]
        parent = candidate["relay_parent_number"]
        stated = None if parent == self.model.now - 1 and self.draws.percent(70) else parent
        return {**candidate, "relay_parent_number": stated, "watermark": {"block": block, "para": sender}}

    # --- queries on the model ---

    def _bits(self, para: int) -> str:
        """Return a bitfield that sends over some channels, none of them condemned. Trailing zeros may be left out."""
        row = self.model.row(para)
        open_columns = [index for index, channel in enumerate(row) if not self._is_condemned(channel)]
        count = min(self.draws.count(self.horizontal_per_100), len(open_columns))
        chosen = self.draws.sample(open_columns, count)
        bits = "".join("1" if index in chosen else "0" for index in range(len(row)))
        return bits.rstrip("0") if self.draws.percent(50) else bits

    def _is_condemned(self, channel: Json) -> bool:
        return self.model.is_condemned(channel["sender"], channel["recipient"])

    def _unread(self, para: int, parent: int) -> list[list[int]]:
        return [place for place in self.model.unread(para) if place[0] <= parent]

    def _watermark(self, para: int, parent: int) -> list[int]:
        """Return a valid next watermark. It stays only if nothing is unread."""
        draws, last, unread = self.draws, self.model.watermarks.get(para), self._unread(para, parent)
        if unread and (draws.percent(60) or is_sleepy(para)):
            return list(unread[0] if is_sleepy(para) else draws.choice(unread))
        if last is not None and not unread and draws.percent(30):
            return list(last)
        return [parent, EVERYBODY]

    # --- one way to break each rule ---

    def _break(self, candidate: Json) -> tuple[str, ...]:
        """Change a candidate so that it will be rejected. Return the errors that it targets; one in four targets two."""
        for kind in self.errors.order():
            if self.ways[kind](candidate):
                other = self.draws.choice(_WATERMARK_KINDS)
                twice = not kind.startswith("Watermark/") and self.draws.percent(25) and self.ways[other](candidate)
                return (kind, other) if twice else (kind,)
        return ()

    def _unknown_para(self, candidate: Json) -> bool:
        candidate["para_id"] = NOBODY_FIRST + self.draws.randrange(10)
        return True

    def _too_long(self, candidate: Json) -> bool:
        bits = candidate["bitfield"].ljust(len(self.model.row(candidate["para_id"])), "0")
        candidate["bitfield"] = bits + self.draws.choice(("0", "0", "1", "01"))
        return True

    def _channel_condemned(self, candidate: Json) -> bool:
        row = self.model.row(candidate["para_id"])
        column = self.draws.one_of([index for index, channel in enumerate(row) if self._is_condemned(channel)])
        if column is not None:
            bits = candidate["bitfield"].ljust(len(row), "0")
            candidate["bitfield"] = f"{bits[:column]}1{bits[column + 1 :]}"
            candidate["message_root"] = self.draws.choice((candidate["message_root"], self.draws.hex(ROOT_BYTES)))
        return column is not None

    def _missing_message_root(self, candidate: Json) -> bool:
        row = self.model.row(candidate["para_id"])
        column = self.draws.one_of([index for index, channel in enumerate(row) if not self._is_condemned(channel)])
        if column is not None:
            candidate["bitfield"] = f"{'0' * column}1"
            candidate["message_root"] = None
        return column is not None

    def _ahead_relay_parent(self, candidate: Json) -> bool:
        ahead = candidate["relay_parent_number"] + self.draws.randint(1, 3)
        candidate["watermark"] = [ahead, self.draws.choice((0, 2000, EVERYBODY))]
        return True

    def _regressed(self, candidate: Json) -> bool:
        last = self.model.watermarks.get(candidate["para_id"])
        if last is None or last == [0, 0]:
            return False
        earlier = [[last[0], last[1] - 1]] if last[1] else []
        earlier += [[last[0] - 1, EVERYBODY]] if last[0] else []
        candidate["watermark"] = self.draws.choice(earlier)
        return True

    def _not_advanced(self, candidate: Json) -> bool:
        para = candidate["para_id"]
        last = self.model.watermarks.get(para)
        if last is None or not self._unread(para, candidate["relay_parent_number"]):
            return False
        candidate["watermark"] = list(last)
        return True


LIMITS: Final[dict[str, int]] = {
    "xcmp_channel_capacity": 8,
    "xcmp_max_outbound_channels": 4,
    "xcmp_sender_deposit": 100,
    "xcmp_recipient_deposit": 60,
    "xcmp_open_request_ttl": 2,
    "xcmp_condemned_sessions": 3,
}
"""A chain's initial limits: counts, balances and session boundaries, all small enough to be reached."""
CHANGES: Final[dict[str, tuple[int, ...]]] = {
    "xcmp_channel_capacity": (4, 8, 16),
    "xcmp_max_outbound_channels": (3, 4, 5),
    "xcmp_sender_deposit": (80, 100, 120),
    "xcmp_recipient_deposit": (40, 60, 80),
    "xcmp_open_request_ttl": (1, 2, 3),
    "xcmp_condemned_sessions": (2, 3, 4),
}


class XcmpSimulation(ModelledChain):
    """One simulated chain with XCMP channels."""

    protocol = "xcmp"
    limits = LIMITS
    changes = CHANGES

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.model: NaiveXcmp = NaiveXcmp(
            LIMITS,
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            on_inclusion=settings.enactment == "on-inclusion",
        )
        self.channels = RequestTraffic(self.model, self.draws)
        self.traffic = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)
