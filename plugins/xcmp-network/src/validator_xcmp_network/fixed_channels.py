# SPDX-License-Identifier: Apache-2.0
"""The fixed set of channels: packed, so that a channel that nobody uses costs four bytes."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from validator.plugin.protocol_api import ChannelId, DecodeError, ParaId

_ITEM_BYTES = 4


class FixedChannels:
    """Channels that a configuration lists. They only ever go, with a para that leaves."""

    __slots__ = ("_senders",)

    def __init__(self, channels: Iterable[ChannelId] = ()) -> None:
        by_recipient: dict[ParaId, list[ParaId]] = {}
        for sender, recipient in channels:
            by_recipient.setdefault(recipient, []).append(sender)
        self._senders = {recipient: array("I", sorted(senders)) for recipient, senders in by_recipient.items()}

    def __contains__(self, channel_id: ChannelId) -> bool:
        sender, recipient = channel_id
        senders = self._senders.get(recipient)
        if senders is None:
            return False
        at = bisect_left(senders, sender)
        return at < len(senders) and senders[at] == sender

    def __iter__(self) -> Iterator[ChannelId]:
        """Yield the channels by recipient, then by sender, ascending."""
        for recipient in sorted(self._senders):
            for sender in self._senders[recipient]:
                yield sender, recipient

    def recipients(self) -> Iterable[ParaId]:
        """Return the paras to which a channel leads."""
        return self._senders.keys()

    def remove_para(self, para: ParaId) -> list[ChannelId]:
        """Remove the channels to a para, then those from it, each ascending, and return them."""
        removed = [(sender, para) for sender in self._senders.pop(para, ())]
        for recipient in sorted(self._senders):
            if (para, recipient) in self:
                senders = self._senders[recipient]
                del senders[bisect_left(senders, para)]
                if not senders:
                    del self._senders[recipient]
                removed.append((para, recipient))
        return removed

    def packed(self, recipient: ParaId) -> bytes:
        """Return the senders of a recipient, ascending, each as a u32 in little endian."""
        return _little_endian(self._senders.get(recipient, array("I"))).tobytes()

    def unpack(self, recipient: ParaId, packed: bytes) -> None:
        """Set the senders of a recipient from `packed`. Raises `DecodeError`."""
        if len(packed) % _ITEM_BYTES:
            raise DecodeError(
                f"senders of {recipient}: expected a multiple of {_ITEM_BYTES} bytes, found {len(packed)}"
            )
        if packed:
            senders = array("I", packed)
            self._senders[recipient] = _little_endian(senders)


def _little_endian(items: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return items
    swapped = array("I", items)
    swapped.byteswap()
    return swapped
