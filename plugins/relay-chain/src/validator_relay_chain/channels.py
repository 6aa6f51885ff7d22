# SPDX-License-Identifier: Apache-2.0
"""Channel requests of a block: those that events of the pallet ``Hrmp`` show, and those that only storage shows.

A request that failed has no event. Fields of events have no names before runtime 1002005, so they are read by place.

Calls of root, such as ``sudo_establish_hrmp_channel`` of test nets and ``force_process_hrmp_open``, and migrations have no event. Their
changes become requests of the block, and the lane is right again. Inside a session the lists of open and of close requests show most of
it, in the block itself. What the block's own records contradict is looked at with it: a request for a channel that the lane has, a message
over one that it lacks. The rest is found at the end of the session, where the whole set of channels is compared.
Source: chain_2026 section 4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from validator_relay_chain.block import ChannelEvent
from validator_relay_chain.block_reads import BlockReads
from validator_relay_chain.candidates import BackedCandidate
from validator_relay_chain.errors import BadAnswer
from validator_relay_chain.storage import Channel, ChannelId, OpenRequest, channel_name

JsonRecord = dict[str, Any]


def requests_of(events: Iterable[ChannelEvent]) -> tuple[list[JsonRecord], list[str]]:
    """Return the requests of a block in order, without lane, block and index, and the names of events that have no record.

    A system channel is opened by its parts: the event says capacity and size, which the call takes from the configuration. An event whose
    fields are not those that its name stands for has no record.
    """
    found: list[JsonRecord] = []
    unread: list[str] = []
    for event in events:
        try:
            records = _records(event)
        except (LookupError, TypeError, ValueError):
            records = None
        if records is None:
            unread.append(f"event Hrmp.{event.name}")
        else:
            found += records
    return found, unread


def _records(event: ChannelEvent) -> list[JsonRecord] | None:
    fields = event.fields
    match event.name:
        case "OpenChannelRequested":
            return [_init(*fields)]
        case "OpenChannelAccepted":
            sender, recipient = fields
            return [_accept(sender, recipient)]
        case "ChannelClosed":
            origin, channel = fields
            return [{"kind": "close_channel", "origin": int(origin), "channel": _channel(channel)}]
        case "OpenChannelCanceled":
            origin, channel = fields
            return [{"kind": "cancel_open_request", "origin": int(origin), "channel": _channel(channel)}]
        case "HrmpChannelForceOpened":
            sender, recipient, places, size = map(int, fields)
            ends = {"sender": sender, "recipient": recipient}
            return [{"kind": "force_open_channel", **ends, "max_places": places, "max_message_size": size}]
        case "HrmpSystemChannelOpened":
            return [_init(*fields), _accept(fields[0], fields[1])]
        case "OpenChannelDepositsUpdated":
            sender, recipient = map(int, fields)
            return [{"kind": "poke_channel_deposits", "sender": sender, "recipient": recipient}]
    return None


def _init(sender: Any, recipient: Any, places: Any, size: Any) -> JsonRecord:
    return {
        "kind": "init_open_channel",
        "origin": int(sender),
        "recipient": int(recipient),
        "max_places": int(places),
        "max_message_size": int(size),
    }


def _accept(sender: Any, recipient: Any) -> JsonRecord:
    return {"kind": "accept_open_channel", "origin": int(recipient), "sender": int(sender)}


def _channel(value: Any) -> list[int]:
    sender, recipient = value.values() if isinstance(value, dict) else value
    return [int(sender), int(recipient)]


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels and requests that a lane has after a block."""

    open: frozenset[ChannelId] = frozenset()
    """Requests to open."""
    confirmed: frozenset[ChannelId] = frozenset()
    closing: frozenset[ChannelId] = frozenset()
    channels: frozenset[ChannelId] = frozenset()

    def after(self, requests: Iterable[Mapping[str, Any]]) -> Channels:
        """Return what there is after requests that have succeeded."""
        open_, confirmed, closing = set(self.open), set(self.confirmed), set(self.closing)
        for request in requests:
            match request["kind"]:
                case "init_open_channel":
                    open_.add((request["origin"], request["recipient"]))
                case "accept_open_channel":
                    confirmed.add((request["sender"], request["origin"]))
                case "force_open_channel":
                    open_.add((request["sender"], request["recipient"]))
                    confirmed.add((request["sender"], request["recipient"]))
                case "cancel_open_request":
                    open_.discard(_pair(request["channel"]))
                case "close_channel":
                    closing.add(_pair(request["channel"]))
        return Channels(frozenset(open_), frozenset(confirmed & open_), frozenset(closing), self.channels)

    def to_json(self) -> dict[str, list[list[int]]]:
        """Return the fields in plain values."""
        return {name: [list(pair) for pair in sorted(getattr(self, name))] for name in self.__slots__}

    @classmethod
    def of(cls, plain: Mapping[str, Iterable[Sequence[int]]]) -> Channels:
        """Return the fields again. Raises ``LookupError``, ``TypeError``, ``ValueError``."""
        return cls(*(frozenset(_pair(each) for each in plain[name]) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class Found:
    """The requests that a block lacks, what there is after it, and a line about each change."""

    requests: tuple[JsonRecord, ...]
    after: Channels
    notices: tuple[str, ...]
    late: tuple[tuple[ChannelId, bool], ...] = ()
    """Channels that no list showed, and whether each has opened."""
    before: tuple[JsonRecord, ...] = ()
    """Requests that stand before the block's own."""


def find(
    number: int,
    known: Channels,
    requests: Sequence[JsonRecord],
    candidates: Iterable[BackedCandidate],
    reads: BlockReads,
    features: Collection[str],
    leaving: Collection[int] | None,
) -> Found:
    """Return what the ``requests`` of a block's events do not explain.

    ``known`` is what the lane has before the block, and ``features`` what its rules know: a request outside them is only named. ``leaving``
    are the paras that go with the session that ends with the block; None inside a session. Raises `BadAnswer` for a list that names a
    request which is not there.
    """
    anew = known.channels & Channels().after(requests).open
    before, gone = _went(known, anew, reads, features, leaving or ())
    there = replace(known, channels=known.channels - gone).after(requests)
    opening, used = _used(there, candidates, reads, features)
    there = replace(there, open=there.open - used, channels=there.channels | used)
    found = (
        inside_session(number, there, reads, features)
        if leaving is None
        else at_session_end(number, there, reads, leaving)
    )
    late = [(channel, False) for channel in sorted(anew | gone)] + [(channel, True) for channel in sorted(used)]
    return replace(
        found,
        before=before,
        requests=(*opening, *found.requests),
        notices=(*_late_lines(number, late), *found.notices),
        late=(*late, *found.late),
    )


def _went(
    known: Channels,
    anew: frozenset[ChannelId],
    reads: BlockReads,
    features: Collection[str],
    leaving: Collection[int],
) -> tuple[tuple[JsonRecord, ...], frozenset[ChannelId]]:
    """Return the requests that close channels before a block's own requests ask for them ``anew``, and the channels that they close.

    The chain takes no request for a channel that is there, so one that the lane has went before, and the lane must lose it first. That is
    what ``force_clean_hrmp`` leaves: a para whose channels are all gone was cleaned.
    """
    if not anew or "forced_requests" not in features:
        return (), frozenset()
    missing = known.channels - known.closing - reads.channels().keys()
    left = anew | {each for each in missing if not any(para in leaving for para in each)}
    requests: list[JsonRecord] = []
    gone: set[ChannelId] = set()
    of = {para: {each for each in known.channels if para in each} for channel in anew for para in channel}
    for para, channels in sorted(of.items(), key=lambda each: (-len(each[1]), each[0])):
        if channels <= left and not channels <= gone:
            requests.append({"kind": "force_clean", "para_id": para})
            gone |= channels
    single = anew - gone
    if single and not known.closing:  # else the others that are to be closed would go with these
        requests += [*map(_closing, sorted(single)), *_forced("force_process_close", features)]
        gone |= single
    return tuple(requests), frozenset(gone)


def _used(
    known: Channels, candidates: Iterable[BackedCandidate], reads: BlockReads, features: Collection[str]
) -> tuple[list[JsonRecord], frozenset[ChannelId]]:
    """Return the channels over which a block's candidates send and that the lane lacks, and the requests that open them at once.

    ``force_process_open`` opens everything that is accepted, so while something else is, the channels wait for the end of the session.
    """
    named = {(each.para_id, message.recipient) for each in candidates for message in each.horizontal_messages}
    unknown = named - known.channels - known.confirmed
    if not unknown or known.confirmed or "forced_requests" not in features:
        return [], frozenset()
    there = reads.channels(unknown)
    found = [request for channel, value in sorted(there.items()) for request in _opened(known, channel, value)]
    return [*found, *(_forced("force_process_open", features) if found else ())], frozenset(there)


def inside_session(number: int, known: Channels, reads: BlockReads, features: Collection[str]) -> Found:
    """Return what the lists of requests show after a block and ``known``, with the block's events, does not explain."""
    open_, closing = reads.request_lists()
    if (open_, closing) == (known.open, known.closing):
        return Found((), known, ())
    requests: list[JsonRecord] = []
    notices: list[str] = []
    for channel in sorted(open_ - known.open):
        request = _request(reads, channel)
        requests += _opening(channel, request.max_capacity, request.max_message_size, accepted=request.confirmed)
        notices.append(f"request {channel_name(channel)} appears")
    gone = known.open - open_
    opened = frozenset(reads.channels(gone)) if gone else frozenset()
    if opened:
        requests += _forced("force_process_open", features)
        notices.append(f"{_names(opened)} opened before the session ends")
    for channel in sorted(gone - opened):
        if channel not in known.confirmed and "cancel_open_request" in features:
            requests.append({"kind": "cancel_open_request", "origin": channel[0], "channel": list(channel)})
        notices.append(f"request {channel_name(channel)} goes")
    for channel in sorted(closing - known.closing):
        requests.append(_closing(channel))
        notices.append(f"{channel_name(channel)} is to be closed")
    closed = known.closing - closing
    if closed:
        requests += _forced("force_process_close", features)
        notices.append(f"{_names(closed)} closed before the session ends")
    new = frozenset(each for each in open_ - known.open if _request(reads, each).confirmed)
    after = Channels(open_, (known.confirmed & open_) | new, closing, (known.channels | opened) - closed)
    return Found(tuple(requests), after, tuple(_lines(number, notices)))


def at_session_end(number: int, known: Channels, reads: BlockReads, leaving: Collection[int]) -> Found:
    """Return what the channels after the last block of a session show and ``known``, with the block's events, does not explain.

    ``leaving`` are paras that go with this session. The requests stand before the session change, which then opens and closes.
    """
    there = reads.channels()
    requests: list[JsonRecord] = []
    late: list[tuple[ChannelId, bool]] = []
    for channel, value in sorted(there.items()):
        if channel in known.channels or channel in known.confirmed:
            continue
        requests += _opened(known, channel, value)
        late.append((channel, True))
    for channel in sorted(known.channels - there.keys() - known.closing):
        if not any(para in leaving for para in channel):
            requests.append(_closing(channel))
            late.append((channel, False))
    open_, closing = reads.request_lists()
    confirmed = frozenset(each for each in open_ if _request(reads, each).confirmed)
    return Found(
        tuple(requests),
        Channels(open_, confirmed, closing, frozenset(there)),
        tuple(_late_lines(number, late)),
        tuple(late),
    )


def _request(reads: BlockReads, channel: ChannelId) -> OpenRequest:
    found = reads.open_request(channel)
    if found is None:
        raise BadAnswer(f"Hrmp.HrmpOpenChannelRequestsList names {channel_name(channel)}, and there is no such request")
    return found


def _opening(channel: ChannelId, places: int, size: int, *, accepted: bool) -> list[JsonRecord]:
    sender, recipient = channel
    asked = {"kind": "init_open_channel", "origin": sender, "recipient": recipient}
    found: list[JsonRecord] = [{**asked, "max_places": places, "max_message_size": size}]
    if accepted:
        found.append({"kind": "accept_open_channel", "origin": recipient, "sender": sender})
    return found


def _opened(known: Channels, channel: ChannelId, value: Channel) -> list[JsonRecord]:
    """Return the requests that a channel lacks which is there."""
    requests = _opening(channel, value.max_capacity, value.max_message_size, accepted=True)
    return requests[1:] if channel in known.open else requests


def _closing(channel: ChannelId) -> JsonRecord:
    return {"kind": "close_channel", "origin": channel[0], "channel": list(channel)}


def _forced(kind: str, features: Collection[str]) -> list[JsonRecord]:
    return [{"kind": kind}] if "forced_requests" in features else []


def _late_lines(number: int, late: Iterable[tuple[ChannelId, bool]]) -> Iterable[str]:
    return _lines(number, (f"{channel_name(channel)} {'opened' if opened else 'closed'}" for channel, opened in late))


def _lines(number: int, notices: Iterable[str]) -> Iterable[str]:
    return (
        f"block {number}: channels without an event of Hrmp: {each}: the lane takes it over from storage"
        for each in notices
    )


def _pair(given: Sequence[int]) -> ChannelId:
    sender, recipient = given
    return int(sender), int(recipient)


def _names(channels: Iterable[ChannelId]) -> str:
    return ", ".join(map(channel_name, sorted(channels)))
