# SPDX-License-Identifier: Apache-2.0
"""Keys of the relay chain's storage.

An item's prefix is the hash of its pallet's name and the hash of the item's name. The maps that a lane reads are hashed with Twox64Concat,
so a key ends with the para or the channel that it belongs to; pages of downward queues are hashed by para with Blake2_128Concat.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from validator_relay_chain.hashing import blake2b_128, twox_64, twox_128

PREFIX_BYTES: Final = 32
HASH_BYTES: Final = 8
PARA_BYTES: Final = 4
PAGE_NUMBER_BYTES: Final = 8
_NAMES: Final[dict[bytes, str]] = {}
"""The items whose prefix was computed."""


def prefix(pallet: str, item: str) -> bytes:
    """Return the 32 bytes that all keys of a storage item begin with."""
    found = twox_128(pallet.encode()) + twox_128(item.encode())
    _NAMES[found] = f"{pallet}.{item}"
    return found


def name_of(key: bytes) -> str:
    """Return the name of a storage item and, where its map is one by para, the para: for lines that name a key."""
    item = _NAMES.get(key[:PREFIX_BYTES])
    if item is None:
        return f"storage key 0x{key.hex()}"
    for what, numbers in (("para", 1), ("channel", 2)):
        try:
            return f"{item} of {what} {'->'.join(map(str, _numbers(key, numbers)))}"
        except ValueError:
            continue
    return item


@lru_cache(maxsize=65_536)
def para_key(item: bytes, para: int) -> bytes:
    """Return the key of a para in a map by para."""
    return _map_key(item, para.to_bytes(PARA_BYTES, "little"))


def channel_key(item: bytes, sender: int, recipient: int) -> bytes:
    """Return the key of a channel in a map by channel."""
    return _map_key(item, sender.to_bytes(PARA_BYTES, "little") + recipient.to_bytes(PARA_BYTES, "little"))


def para_of(key: bytes) -> int:
    """Return the para of a key of a map by para. Raises ``ValueError`` for another key."""
    (para,) = _numbers(key, 1)
    return para


def channel_of(key: bytes) -> tuple[int, int]:
    """Return sender and recipient of a key of a map by channel. Raises ``ValueError`` for another key."""
    sender, recipient = _numbers(key, 2)
    return sender, recipient


def _map_key(item: bytes, key: bytes) -> bytes:
    return item + twox_64(key) + key


def map_key(item: bytes, *parts: bytes) -> bytes:
    """Return the key of a map by several keys, each hashed with Twox64Concat."""
    return item + b"".join(twox_64(part) + part for part in parts)


def page_key(para: int, number: int) -> bytes:
    """Return the key of a page of a para's downward queue."""
    plain, page = para.to_bytes(PARA_BYTES, "little"), number.to_bytes(PAGE_NUMBER_BYTES, "little")
    return DMP_PAGES + blake2b_128(plain) + plain + twox_64(page) + page


def page_of(key: bytes) -> tuple[int, int]:
    """Return para and number of a key of a page of a downward queue. Raises ``ValueError`` for another key."""
    para = int.from_bytes(key[PREFIX_BYTES + 16 : PREFIX_BYTES + 16 + PARA_BYTES], "little")
    number = int.from_bytes(key[-PAGE_NUMBER_BYTES:], "little")
    if key != page_key(para, number):
        raise ValueError(f"storage key: expected one of a page of a downward queue, found 0x{key.hex()}")
    return para, number


def map_keys(key: bytes, sizes: tuple[int, ...]) -> list[bytes]:
    """Return the keys, of the given numbers of bytes, that a map's key is made of. Raises ``ValueError`` for another key."""
    found, at = [], PREFIX_BYTES
    for size in sizes:
        at += HASH_BYTES + size
        found.append(key[at - size : at])
    if key != map_key(key[:PREFIX_BYTES], *found) or len(key) != at:
        raise ValueError(f"storage key: expected one of a map by {len(sizes)} keys, found 0x{key.hex()}")
    return found


def _numbers(key: bytes, count: int) -> list[int]:
    plain = key[PREFIX_BYTES + HASH_BYTES :]
    if len(plain) != count * PARA_BYTES or twox_64(plain) != key[PREFIX_BYTES : PREFIX_BYTES + HASH_BYTES]:
        raise ValueError(f"storage key: expected one of a map by {count} para ids, found 0x{key.hex()}")
    return [int.from_bytes(plain[at : at + PARA_BYTES], "little") for at in range(0, len(plain), PARA_BYTES)]


SYSTEM_EVENTS: Final = prefix("System", "Events")
ACTIVE_CONFIG: Final = prefix("Configuration", "ActiveConfig")
PARA_LIFECYCLES: Final = prefix("Paras", "ParaLifecycles")

HRMP_CHANNELS: Final = prefix("Hrmp", "HrmpChannels")
HRMP_CONTENTS: Final = prefix("Hrmp", "HrmpChannelContents")
HRMP_DIGESTS: Final = prefix("Hrmp", "HrmpChannelDigests")
HRMP_WATERMARKS: Final = prefix("Hrmp", "HrmpWatermarks")
HRMP_INGRESS: Final = prefix("Hrmp", "HrmpIngressChannelsIndex")
HRMP_EGRESS: Final = prefix("Hrmp", "HrmpEgressChannelsIndex")
HRMP_OPEN_REQUESTS: Final = prefix("Hrmp", "HrmpOpenChannelRequests")
HRMP_OPEN_REQUESTS_LIST: Final = prefix("Hrmp", "HrmpOpenChannelRequestsList")
HRMP_CLOSE_REQUESTS: Final = prefix("Hrmp", "HrmpCloseChannelRequests")
HRMP_CLOSE_REQUESTS_LIST: Final = prefix("Hrmp", "HrmpCloseChannelRequestsList")

DMP_QUEUES: Final = prefix("Dmp", "DownwardMessageQueues")
"""Messages of a para in one value. Since downward queues have pages it is no longer in the metadata, but may hold what is not moved yet."""
DMP_META: Final = prefix("Dmp", "DownwardMessageQueueMeta")
DMP_PAGES: Final = prefix("Dmp", "DownwardMessageQueuePages")
DMP_HEADS: Final = prefix("Dmp", "DownwardMessageQueueHeads")

PENDING: Final = prefix("ParaInclusion", "PendingAvailability")
PENDING_COMMITMENTS: Final = prefix("ParaInclusion", "PendingAvailabilityCommitments")
PENDING_V1: Final = prefix("ParaInclusion", "V1")
"""Since runtime 1003003: a queue of pending candidates for each para, with their commitments."""

UMP_QUEUES: Final = prefix("Ump", "RelayDispatchQueues")
"""Up to runtime 9370; later upward messages wait in `MessageQueue`."""
MQ_BOOKS: Final = prefix("MessageQueue", "BookStateFor")
MQ_PAGES: Final = prefix("MessageQueue", "Pages")
MQ_HEAD: Final = prefix("MessageQueue", "ServiceHead")
