# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain with ingress queues, judged by the naive model: channels that open and close, or fixed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from validator_simulators import Draws, Json, Judged, LeastMet, ModelledChain, SimulationSettings, is_sleepy
from validator_simulators.xcmp.traffic import CHANGES as XCMP_CHANGES
from validator_simulators.xcmp.traffic import LIMITS as XCMP_LIMITS
from validator_simulators.xcmp.traffic import NOBODY_FIRST, RequestTraffic
from validator_simulators.xcmp.traffic import CandidateTraffic as ChannelTraffic
from validator_simulators.xcmp_network.model import NaiveNetwork, Name

REPORTED_PERCENT: Final = 55
"""Percentage of the missing bodies that are reported in a block."""
ROOT_BYTES: Final = 32


class ReportTraffic:
    """Makes reports. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveNetwork, draws: Draws) -> None:
        self.model = model
        self.draws = draws
        self.ways: dict[str, Callable[[], Json | None]] = {
            "Body/NotExpected": self._not_expected,
            "Body/SizeMismatch": self._size_mismatch,
            "Body/RootMismatch": self._root_mismatch,
            "Body/Duplicate": self._duplicate,
        }
        self.errors = LeastMet(draws, self.ways)

    def due(self) -> list[Json]:
        """Return the messages whose bodies are reported in this block."""
        missing = [message for message in self.model.messages if not message["held"]]
        return [message for message in missing if self.draws.percent(REPORTED_PERCENT)]

    def true(self, message: Json) -> tuple[Json, Json]:
        """Return the report of a message's body, and the model's verdict."""
        return self._judged(self._report(message))

    def broken(self) -> tuple[Json, Json] | None:
        """Return a report that breaks a rule, and the model's verdict."""
        made = (self.ways[kind]() for kind in self.errors.order())
        report = next((each for each in made if each is not None), None)
        return None if report is None else self._judged(report)

    def _judged(self, report: Json) -> tuple[Json, Json]:
        result = self.model.request(report)
        self.errors.note(result)
        return report, result

    @staticmethod
    def _report(message: Json) -> Json:
        return {
            "kind": "report_body",
            "recipient": message["recipient"],
            "sender": message["sender"],
            "sent_at": message["block"],
            "root": message["root"],
            "size": message["size"],
        }

    def _one(self, *, held: bool) -> Json | None:
        return self.draws.one_of([message for message in self.model.messages if message["held"] == held])

    def _not_expected(self) -> Json | None:
        message = self.draws.one_of(self.model.messages)
        if message is None:
            return None
        return self._report(message) | {"sender": NOBODY_FIRST + self.draws.randrange(10)}

    def _size_mismatch(self) -> Json | None:
        message = self.draws.one_of(self.model.messages)
        return None if message is None else self._report(message) | {"size": message["size"] + 1}

    def _root_mismatch(self) -> Json | None:
        message = self.draws.one_of(self.model.messages)
        return None if message is None else self._report(message) | {"root": self.draws.hex(ROOT_BYTES)}

    def _duplicate(self) -> Json | None:
        message = self._one(held=True)
        return None if message is None else self._report(message)


_AHEAD: Final = "Ack/AheadRelayParent"
"""The second rule of candidates that break two."""


_OF_OPEN_CHANNELS: Final = frozenset({
    "Bitfield/TooLong", "Bitfield/ChannelCondemned", "Bitfield/MissingMessageRoot", "Watermark/AheadRelayParent", "Watermark/Regressed",
    "Watermark/NotAdvanced", "Outbox/BitfieldMismatch",
})  # fmt: skip
"""Errors of candidates that fixed channels do not have."""


class RoomyChannels(ChannelTraffic):
    """The part of candidates that concerns channels: it marks only those that take another message."""

    model: NaiveNetwork

    def _bits(self, para: int) -> str:
        row = self.model.row(para)
        roomy = [index for index, channel in enumerate(row) if takes_message(self.model, channel)]
        chosen = self.draws.sample(roomy, min(self.draws.count(self.horizontal_per_100), len(roomy)))
        bits = "".join("1" if index in chosen else "0" for index in range(len(row)))
        return bits.rstrip("0") if self.draws.percent(50) else bits


def takes_message(model: NaiveNetwork, channel: Json) -> bool:
    """Return whether a channel takes another message."""
    sender, recipient = channel["sender"], channel["recipient"]
    bound = model.config["max_ingress_messages"]
    return (
        not model.is_condemned(sender, recipient)
        and model.used(sender, recipient) < channel["capacity"]
        and len(model.inbox(recipient)) < bound
    )


class CandidateTraffic:
    """Makes candidates. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveNetwork, draws: Draws, horizontal_per_100: int) -> None:
        self.model = model
        self.draws = draws
        self.channels = RoomyChannels(model, draws, horizontal_per_100)
        self.ways: dict[str, Callable[[Json], bool]] = {
            **self.channels.ways,
            "Candidate/AlreadyEnactedInBlock": self._already_enacted,
            "Outbox/NotSorted": self._not_sorted,
            "Outbox/DuplicateRecipient": self._duplicate_recipient,
            "Outbox/NoSuchChannel": self._no_such_channel,
            "Outbox/ChannelFull": self._channel_full,
            "Outbox/IngressFull": self._ingress_full,
            "Outbox/BytesExceeded": self._bytes_exceeded,
            "Outbox/BitfieldMismatch": self._bitfield_mismatch,
            _AHEAD: self._ahead_relay_parent,
            "Ack/UnknownMessage": self._unknown_message,
            "Ack/AlreadyAcked": self._already_acked,
            "Ack/NoProgress": self._no_progress,
            "Ack/Gap": self._gap,
            "Ack/OutOfOrder": self._out_of_order,
            "Ack/BodyMissing": self._body_missing,
        }
        """By error: changes a good candidate so that it provokes the error. Returns whether it succeeded."""
        if not model.composed:
            self.ways = {kind: way for kind, way in self.ways.items() if kind not in _OF_OPEN_CHANNELS}
        self.errors = LeastMet(draws, self.ways)

    def play(self, para: int, *, breaks: bool) -> tuple[Json, Json, tuple[str, ...]] | None:
        """Return a para's candidate record, the model's verdict, and the errors that it targets, or None if the para has no candidate."""
        candidate = self.good(para, stalled=breaks)
        if candidate is None:
            return None
        kinds = self._break(candidate) if breaks else ()
        result = self.model.candidate(candidate)
        self.errors.note(result)
        return self._record(candidate), result, kinds

    def good(self, para: int, *, stalled: bool = False) -> Json | None:
        """Return a candidate that will be accepted, or None: no block to build on, or the body of the next message is missing.

        In the latter case a ``stalled`` one acknowledges nothing.
        """
        candidate = self.channels.good(para)
        if candidate is None:
            return None
        parent = candidate["relay_parent_number"]
        visible = self.model.visible(para, parent)
        ready = self._ready(para, visible)
        if visible and not ready and not stalled:
            return None
        candidate["outbox"] = self._outbox(self._recipients(para, candidate["bitfield"]))
        candidate["acks"] = self._acks(ready, sleepy=is_sleepy(para))
        return candidate

    def _record(self, candidate: Json) -> Json:
        block, sender = candidate["watermark"]
        return {**candidate, "watermark": {"block": block, "para": sender}}

    def _ready(self, para: int, visible: list[Name]) -> list[Name]:
        """Return the front of the visible messages up to the first one whose body nobody has reported."""
        ready = []
        for name in visible:
            message = self.model.message(para, name)
            if message is None or not message["held"]:
                break
            ready.append(name)
        return ready

    def _recipients(self, para: int, bits: str) -> list[int]:
        links = self.model.links(para)
        if self.model.composed:
            return sorted(channel["recipient"] for bit, channel in zip(bits, links, strict=False) if bit == "1")
        roomy = [channel["recipient"] for channel in links if takes_message(self.model, channel)]
        return sorted(self.draws.sample(roomy, min(self.draws.count(self.channels.horizontal_per_100), len(roomy))))

    def _outbox(self, recipients: list[int]) -> list[Json]:
        most = self.model.config["max_block_bytes"] // max(1, len(recipients))
        return [self._message(recipient, self.draws.randint(0, most)) for recipient in recipients]

    def _message(self, recipient: int, size: int = 0) -> Json:
        return {"recipient": recipient, "root": self.draws.hex(ROOT_BYTES), "size": size}

    def _acks(self, ready: list[Name], *, sleepy: bool) -> list[list[int]]:
        """Acknowledge some messages from the front; name all of them, or only the last one of each sender."""
        if not ready:
            return []
        count = 1 if sleepy else self.draws.randint(1, len(ready)) if self.draws.percent(40) else len(ready)
        taken = ready[:count]
        if self.draws.percent(50):
            taken = sorted({sender: (block, sender) for block, sender in taken}.values())
        names = [list(name) for name in taken]
        return self.draws.sample(names, len(names)) if self.draws.percent(20) else names

    # --- one way to break each rule ---

    def _break(self, candidate: Json) -> tuple[str, ...]:
        """Change a candidate so that it will be rejected. Return the errors that it targets; one in four targets two."""
        for kind in self.errors.order():
            if self.ways[kind](candidate):
                twice = not kind.startswith("Ack/") and self.draws.percent(25) and self._ahead_relay_parent(candidate)
                return (kind, _AHEAD) if twice else (kind,)
        return ()

    def _visible(self, candidate: Json) -> list[Name]:
        return self.model.visible(candidate["para_id"], candidate["relay_parent_number"])

    def _own_row(self, candidate: Json) -> list[Json]:
        return self.model.links(candidate["para_id"])

    def _already_enacted(self, candidate: Json) -> bool:
        para = self.draws.one_of([each for each in sorted(self.model.paras) if self.model.has_candidate(each)])
        if para is not None:
            candidate["para_id"] = para
        return para is not None

    def _not_sorted(self, candidate: Json) -> bool:
        low = self.draws.randrange(NOBODY_FIRST)
        candidate["outbox"] = [self._message(low + 1 + self.draws.randrange(9)), self._message(low)]
        return True

    def _duplicate_recipient(self, candidate: Json) -> bool:
        recipient = self.draws.randrange(NOBODY_FIRST)
        candidate["outbox"] = [self._message(recipient), self._message(recipient)]
        return True

    def _no_such_channel(self, candidate: Json) -> bool:
        candidate["outbox"] = [*candidate["outbox"], self._message(NOBODY_FIRST + self.draws.randrange(10))]
        return True

    def _channel_full(self, candidate: Json) -> bool:
        full = [
            channel["recipient"]
            for channel in self._own_row(candidate)
            if self.model.used(channel["sender"], channel["recipient"]) >= channel["capacity"]
        ]
        return self._send_to(candidate, full)

    def _ingress_full(self, candidate: Json) -> bool:
        bound = self.model.config["max_ingress_messages"]
        crowded = [
            channel["recipient"]
            for channel in self._own_row(candidate)
            if self.model.used(channel["sender"], channel["recipient"]) < channel["capacity"]
            and len(self.model.inbox(channel["recipient"])) >= bound
        ]
        return self._send_to(candidate, crowded)

    def _bytes_exceeded(self, candidate: Json) -> bool:
        most = self.model.config["max_block_bytes"]
        return self._send_to(candidate, self._roomy(candidate), size=most + self.draws.randint(1, 9))

    def _bitfield_mismatch(self, candidate: Json) -> bool:
        if candidate["outbox"]:
            candidate["outbox"] = candidate["outbox"][1:]
            return True
        return self._send_to(candidate, self._roomy(candidate))

    def _roomy(self, candidate: Json) -> list[int]:
        return [each["recipient"] for each in self._own_row(candidate) if takes_message(self.model, each)]

    def _send_to(self, candidate: Json, recipients: list[int], size: int = 0) -> bool:
        recipient = self.draws.one_of(recipients)
        if recipient is not None:
            candidate["outbox"] = [self._message(recipient, size)]
        return recipient is not None

    def _ahead_relay_parent(self, candidate: Json) -> bool:
        ahead = [candidate["relay_parent_number"] + self.draws.randint(1, 3), self.draws.choice((2000, 2001, 2002))]
        candidate["acks"] = [ahead, *candidate["acks"]]
        return True

    def _unknown_message(self, candidate: Json) -> bool:
        block = max(0, candidate["relay_parent_number"] - self.draws.randrange(3))
        candidate["acks"] = [[block, NOBODY_FIRST + self.draws.randrange(10)], *candidate["acks"]]
        return True

    def _already_acked(self, candidate: Json) -> bool:
        acks, past = candidate["acks"], self.model.acked.get(candidate["para_id"], [])[-20:]
        visible = [name for name in past if name[0] <= candidate["relay_parent_number"]]
        if acks and self.draws.percent(30):
            candidate["acks"] = [acks[0], *acks]
        elif visible:
            candidate["acks"] = [list(self.draws.choice(visible)), *acks]
        return bool(acks or visible) and candidate["acks"] != acks

    def _no_progress(self, candidate: Json) -> bool:
        candidate["acks"] = []
        return bool(self._visible(candidate))

    def _gap(self, candidate: Json) -> bool:
        visible = self._visible(candidate)
        jumps = [name for name in visible if any(block < name[0] and by != name[1] for block, by in visible)]
        return self._acknowledge(candidate, jumps)

    def _out_of_order(self, candidate: Json) -> bool:
        visible = self._visible(candidate)
        return self._acknowledge(candidate, [name for name in visible[1:] if name[0] == visible[0][0]])

    def _body_missing(self, candidate: Json) -> bool:
        visible = self._visible(candidate)
        ready = self._ready(candidate["para_id"], visible)
        if len(ready) == len(visible):
            return False
        candidate["acks"] = [list(name) for name in visible[: len(ready) + 1]]
        return True

    def _acknowledge(self, candidate: Json, names: list[Name]) -> bool:
        name = self.draws.one_of(names)
        if name is not None:
            candidate["acks"] = [list(name)]
        return name is not None


LIMITS: Final[dict[str, Any]] = {
    **XCMP_LIMITS,
    "xcmp_channel_capacity": 3,
    "max_block_bytes": 1000,
    "max_ingress_messages": 5,
    "intra_block": "prefix",
    "require_bodies": True,
    "channels": "xcmp",
}
"""A chain's initial configuration: the strict modes, and bounds that are small enough to be reached."""
CHANGES: Final[dict[str, tuple[int, ...]]] = {
    **XCMP_CHANGES,
    "xcmp_channel_capacity": (2, 3, 4),
    "max_block_bytes": (500, 1000, 2000),
    "max_ingress_messages": (4, 5, 6),
}


class NetworkSimulation(ModelledChain):
    """One simulated chain with ingress queues."""

    protocol = "xcmp-network"
    limits = LIMITS
    changes = CHANGES

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.model: NaiveNetwork = NaiveNetwork(
            dict(self.limits),
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            on_inclusion=settings.enactment == "on-inclusion",
            channels=self.first_channels(),
        )
        self.channels = RequestTraffic(self.model, self.draws)
        self.reports = ReportTraffic(self.model, self.draws)
        self.traffic = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)

    def requests(self) -> Iterator[Judged]:
        """Report bodies, some of them wrongly; then make channel requests."""
        for message in self.reports.due():
            if self.breaks():
                broken = self.reports.broken()
                if broken is not None:
                    yield broken
            yield self.reports.true(message)
        yield from self.channel_requests()

    def first_channels(self) -> list[tuple[int, int]]:
        """Return the fixed channels, sender and recipient."""
        return []

    def channel_requests(self) -> Iterator[Judged]:
        """Make requests for channels."""
        return super().requests()


TOPOLOGY: Final = "fixed"
"""The name of this topology in `SimulationSettings.topology`."""
RECIPIENTS: Final = 10
"""Recipients of each para at the beginning, if there are as many others."""
REFUSED_PERCENT: Final = 50
"""Percentage of the blocks with a wrong request in which it is one for a channel."""


FIXED_LIMITS: Final[dict[str, Any]] = {**LIMITS, "channels": "fixed", "max_channel_messages": 3}
FIXED_CHANGES: Final[dict[str, tuple[int, ...]]] = {
    **{key: values for key, values in CHANGES.items() if key != "xcmp_channel_capacity"},
    "max_channel_messages": (2, 3, 4),
}


class FixedNetworkSimulation(NetworkSimulation):
    """One simulated chain with ingress queues over fixed channels. A para that leaves takes its channels along, and gets none again."""

    limits = FIXED_LIMITS
    changes = FIXED_CHANGES

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.open_channels = [list(pair) for pair in self.model.fixed]

    def chain(self) -> Json:
        """Return the chain's complete configuration."""
        described = super().chain()
        return {**described, "config": {**described["config"], "open_channels": self.open_channels}}

    def first_channels(self) -> list[tuple[int, int]]:
        """Draw the recipients of each para."""
        paras = sorted(para["para_id"] for para in self.sessions.genesis)
        count = max(RECIPIENTS, self.settings.channels_per_para)
        found: list[tuple[int, int]] = []
        for sender in paras:
            others = [para for para in paras if para != sender]
            found += [(sender, recipient) for recipient in self.draws.sample(others, min(count, len(others)))]
        return sorted(found)

    def channel_requests(self) -> Iterator[Judged]:
        """Make requests for channels, which such a chain refuses."""
        paras = self.paras()
        if len(paras) > 1 and self.breaks() and self.draws.percent(REFUSED_PERCENT):
            origin, recipient = self.draws.sample(paras, 2)
            request: dict[str, Any] = {"kind": "init_open_channel", "origin": origin, "recipient": recipient}
            yield request, self.model.request(request)


def simulation(settings: SimulationSettings) -> NetworkSimulation:
    """Return a simulated chain; the settings' topology says whether its channels are fixed."""
    return FixedNetworkSimulation(settings) if settings.topology == TOPOLOGY else NetworkSimulation(settings)
