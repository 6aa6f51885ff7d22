# SPDX-License-Identifier: Apache-2.0
"""Channel requests: the calls that protocols share, their records, and the list of open ones, by channel and counted by sender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from validator.core.types import Balance, ChannelId, ParaId, SessionIndex
from validator.protocols.kit.indexes import channel_name, decrease, increase


class InitOpenChannel(NamedTuple):
    """``init_open_channel(recipient)`` called by ``origin``."""

    origin: ParaId
    recipient: ParaId


class AcceptOpenChannel(NamedTuple):
    """``accept_open_channel(i)`` called by ``origin``; ``request_index`` is the position in the list of open requests, from 0."""

    origin: ParaId
    request_index: int


class AcceptOpenChannelFrom(NamedTuple):
    """``accept_open_channel`` of the request from ``sender`` to ``origin``, whatever its position in the list.

    Positions move at a session boundary, so an index may then select another request; the pair cannot. Source: xcmp_rules 1.2.
    """

    origin: ParaId
    sender: ParaId


class RequestRecords:
    """The records of a protocol's channel requests, which are named tuples of numbers.

    The Avro record of a kind has its class's name in ``namespace``. In plain fields the position among ``kinds`` comes first. Fields in
    ``unchecked`` are no numbers. ``check`` raises `LimitError` for a number out of range.
    """

    def __init__(
        self,
        namespace: str,
        kinds: Sequence[type[Any]],
        check: Callable[[str, int], None],
        unchecked: Collection[str] = (),
    ) -> None:
        self._kinds = kinds
        self._names = [f"{namespace}.{kind.__name__}" for kind in kinds]
        self._check = check
        self._unchecked = unchecked

    def shape(self, record: dict[str, Any]) -> tuple[Any, ...]:
        """Return ``(position, *fields)`` of a decoded record. Raises `LimitError`."""
        name, call = record["request"]
        position = self._names.index(name)
        fields = self._kinds[position]._fields
        for each in fields:
            if each not in self._unchecked:
                self._check(f"request.{each}", call[each])
        return position, *(call[each] for each in fields)

    def make(self, fields: tuple[Any, ...]) -> Any:
        """Return the request of ``(position, *fields)``."""
        return self._kinds[fields[0]]._make(fields[1:])

    def record(self, lane: str, block: int, index: int, request: Any) -> dict[str, Any]:
        """Return the record of a request, the inverse of `shape`."""
        name = self._names[self._kinds.index(type(request))]
        return {"lane": lane, "block": block, "index": index, "request": (name, request._asdict())}


@dataclass(slots=True)
class OpenRequest:
    """A request to open a channel, with its reserved deposits. The recipient's deposit is 0 until the request is confirmed."""

    sender: ParaId
    recipient: ParaId
    sender_deposit: Balance
    recipient_deposit: Balance = 0
    confirmed: bool = False
    age: SessionIndex = 0

    @property
    def channel_id(self) -> ChannelId:
        """The requested channel."""
        return self.sender, self.recipient


@dataclass(slots=True)
class OpenRequests:
    """Open requests, at most one for each channel.

    Its position in ``listed`` addresses a request. The list only grows during a session; the session change removes gaps.
    """

    listed: list[OpenRequest] = field(default_factory=list)
    by_channel: dict[ChannelId, OpenRequest] = field(default_factory=dict)
    """Invariant: the listed requests, each once."""
    counts: dict[ParaId, int] = field(default_factory=dict)
    """Invariant: the number of listed requests of each sender."""

    def __len__(self) -> int:
        return len(self.listed)

    def __iter__(self) -> Iterator[OpenRequest]:
        return iter(self.listed)

    def __getitem__(self, index: int) -> OpenRequest:
        return self.listed[index]

    def add(self, request: OpenRequest) -> None:
        """Append a request."""
        self.listed.append(request)
        self.by_channel[request.channel_id] = request
        increase(self.counts, request.sender)

    def index(self, request: OpenRequest) -> int:
        """Return the position of a listed request."""
        return next(at for at, listed in enumerate(self.listed) if listed is request)

    def keep(self, kept: Iterable[OpenRequest]) -> None:
        """Replace the list with the requests that are kept, in their order."""
        self.listed[:] = kept

    def forget(self, request: OpenRequest) -> None:
        """Remove a request from the index and the counts. The caller replaces the list (`keep`)."""
        del self.by_channel[request.channel_id]
        decrease(self.counts, request.sender)

    def broken_invariants(self, channels: Iterable[ChannelId]) -> Iterator[str]:
        """Yield a sentence for each invariant that does not hold; ``channels`` are the open channels."""
        listed = [request.channel_id for request in self.listed]
        if sorted(listed) != sorted(self.by_channel) or any(
            self.by_channel.get(request.channel_id) is not request for request in self.listed
        ):
            yield f"by_channel has {_names(self.by_channel)}, the open requests are {_names(listed)}"
        if self.counts != dict(Counter(sender for sender, _ in listed)):
            yield f"counts is {self.counts}, the open requests are {_names(listed)}"
        for request in self.listed:
            if request.channel_id in channels:
                yield f"channel {channel_name(request.channel_id)} is both open and requested"
            if not request.confirmed and request.recipient_deposit:
                yield f"the request for {channel_name(request.channel_id)} holds a deposit of the recipient, who has not confirmed it"

    def view(self) -> list[dict[str, Any]]:
        """Return the requests as the conformance format has them."""
        return [
            {"sender": each.sender, "recipient": each.recipient, "confirmed": each.confirmed, "age": each.age}
            for each in self.listed
        ]

    def deposits(self) -> Iterator[tuple[ParaId, Balance]]:
        """Yield each deposit that requests hold, with the para that paid it."""
        for request in self.listed:
            yield request.sender, request.sender_deposit
            yield request.recipient, request.recipient_deposit


def _names(channel_ids: Iterable[ChannelId]) -> str:
    return ", ".join(map(channel_name, sorted(channel_ids))) or "nothing"
