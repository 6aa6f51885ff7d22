# SPDX-License-Identifier: Apache-2.0
"""Channel requests of a simulated chain: good ones, and for each error some that break its rule, if the state allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from validator.simulate import Draws, Json, LeastMet
from validator_xcmp.simulation.model import NaiveXcmp

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
