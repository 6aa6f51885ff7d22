# SPDX-License-Identifier: Apache-2.0
"""Turns the storage after one block into what a lane begins with: its STATE.json, the candidates that were pending, and the position.

Every value is proven against the header's state root where the node can. The raw answers are kept in a file next to the state.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from validator.plugin.api import DecodeError
from validator_relay_chain import keys, storage
from validator_relay_chain.candidates import PendingCandidate, read_pending, read_pending_v1
from validator_relay_chain.channels import Channels, JsonRecord
from validator_relay_chain.convert import candidate_record
from validator_relay_chain.errors import FollowError, SeedError, UndecodableBlock
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.limits import VALUES_PER_CALL
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.position import Pending, Position
from validator_relay_chain.rules import CONFIGURATION, PRESET, SIGNALS, decode_configuration, features_of
from validator_relay_chain.source import Chain
from validator_relay_chain.storage import ONBOARDING, ChannelId, channel_name, is_para, para_kind, whole_queues
from validator_relay_chain.upward import upward_state

ITEMS: Final = (
    ("configuration", keys.ACTIVE_CONFIG),
    ("lifecycles of paras", keys.PARA_LIFECYCLES),
    ("channels", keys.HRMP_CHANNELS),
    ("contents of channels", keys.HRMP_CONTENTS),
    ("digests", keys.HRMP_DIGESTS),
    ("watermarks", keys.HRMP_WATERMARKS),
    ("channels by recipient", keys.HRMP_INGRESS),
    ("channels by sender", keys.HRMP_EGRESS),
    ("requests to open", keys.HRMP_OPEN_REQUESTS),
    ("their order", keys.HRMP_OPEN_REQUESTS_LIST),
    ("requests to close", keys.HRMP_CLOSE_REQUESTS_LIST),
    ("downward queues", keys.DMP_QUEUES),
    ("heads of downward queues", keys.DMP_HEADS),
)
"""What every runtime has: a title and the prefix of its keys."""

SINGLE: Final = (keys.ACTIVE_CONFIG, keys.HRMP_OPEN_REQUESTS_LIST, keys.HRMP_CLOSE_REQUESTS_LIST, keys.MQ_HEAD)
"""Items of one value: no maps."""

PENDING_BEFORE_V1: Final = (
    ("pending candidates", keys.PENDING),
    ("their commitments", keys.PENDING_COMMITMENTS),
)
PENDING_V1: Final = (("pending candidates", keys.PENDING_V1),)
DOWNWARD_PAGES: Final = (
    ("pages of downward queues that wait", keys.DMP_META),
    ("pages of downward queues", keys.DMP_PAGES),
)
UPWARD: Final = (("upward queues", keys.UMP_QUEUES),)
UPWARD_PAGES: Final = (
    ("books of upward messages", keys.MQ_BOOKS),
    ("pages of upward messages", keys.MQ_PAGES),
    ("whose are dispatched next", keys.MQ_HEAD),
)

Progress = Callable[[str, int, int], None]
"""Called with what is read, how many of its values are there, and how many it has so far."""


@dataclass(frozen=True)
class Snapshot:
    """The storage after a block, by key."""

    header: Header
    spec_name: str
    spec_version: int
    """Of the runtime in this state."""
    values: dict[bytes, bytes] = field(default_factory=dict)
    is_proven: bool = True
    """Whether every value is proven. That no key was left out is compared as far as the state says it twice (`seeding`)."""

    def of(self, prefix: bytes) -> dict[bytes, bytes]:
        """Return the values of a storage item, by key, ascending."""
        return {key: value for key, value in sorted(self.values.items()) if key.startswith(prefix)}

    def write(self, path: Path) -> None:
        """Keep the snapshot as JSON lines with gzip. Raises `FollowError`."""
        lines: list[dict[str, Any]] = [
            {
                "header": self.header.to_json(),
                "hash": to_hex(self.header.hash),
                "specName": self.spec_name,
                "specVersion": self.spec_version,
                "proven": self.is_proven,
            }
        ]
        lines += [{"key": to_hex(key), "value": to_hex(value)} for key, value in sorted(self.values.items())]
        try:
            with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                for line in lines:
                    packed.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise FollowError(f"{path}: cannot be written: {error.strerror}") from error


def take_snapshot(chain: Chain, header: Header, runtime: Runtime, progress: Progress) -> Snapshot:
    """Return the storage after a block.

    Raises `UndecodableBlock` for a runtime whose storage has another shape, `BadAnswer` if every node's proof is wrong, and `NodeError`.
    """
    runtime.check_seeded()
    block_hash = header.hash
    values: dict[bytes, bytes] = {}
    is_proven = True
    for title, prefix in items_of(runtime):
        done = total = 0
        for page in _pages(chain, prefix, block_hash):
            total += len(page)
            for start in range(0, len(page), VALUES_PER_CALL):
                part = page[start : start + VALUES_PER_CALL]
                found, is_part_proven = chain.checked(chain.values(part, block_hash), header)
                is_proven = is_proven and is_part_proven
                values |= {key: value for key, value in found.items() if value is not None}
                done += len(part)
                progress(title, done, total)
        progress(title, done, total)
    return Snapshot(header, runtime.spec_name, runtime.spec_version, values, is_proven)


def items_of(runtime: Runtime) -> tuple[tuple[str, bytes], ...]:
    """Return titles and prefixes of what is read of a runtime's state."""
    pending = PENDING_V1 if runtime.has("ParaInclusion", "V1") else PENDING_BEFORE_V1
    upward = UPWARD_PAGES if runtime.has("MessageQueue", "BookStateFor") else ()
    downward = DOWNWARD_PAGES if runtime.has_downward_pages else ()
    return (*ITEMS, *downward, *pending, *(UPWARD if runtime.has("Ump", "RelayDispatchQueues") else ()), *upward)


def _pages(chain: Chain, prefix: bytes, block_hash: bytes) -> Iterable[list[bytes]]:
    """Yield the keys of a storage item: of a map as the node lists them, else the prefix itself."""
    if prefix in SINGLE:
        yield [prefix]
    else:
        yield from chain.keys_of(prefix, block_hash)


@dataclass(frozen=True)
class Seed:
    """What a lane begins with."""

    state: JsonRecord
    """The content of STATE.json. Its first block is the one of the snapshot, whose record has the pending candidates."""
    records: tuple[tuple[str, JsonRecord], ...]
    position: Position
    configuration: Mapping[str, int]
    """The Router's limits."""
    notices: tuple[str, ...]
    unread: tuple[str, ...]
    """What of the state could not be decoded."""


def make_seed(lane: str, snapshot: Snapshot, runtime: Runtime, genesis: bytes, recent: Iterable[bytes] = ()) -> Seed:
    """Return what a lane begins with after a block.

    ``recent`` are the hashes of the blocks before it. What belongs to paras that do not exist any more is left out. Raises `SeedError` for
    values that do not decode, or contradict each other.
    """
    try:
        return _Making(lane, snapshot, runtime).seed(genesis, tuple(recent))
    except (DecodeError, ValueError, LookupError) as error:
        raise SeedError(f"block {snapshot.header.number}: {error}") from error


class _Making:
    def __init__(self, lane: str, snapshot: Snapshot, runtime: Runtime) -> None:
        self._lane, self._snapshot, self._runtime = lane, snapshot, runtime
        self._notices: list[str] = []
        self._lifecycles = {keys.para_of(key): raw[0] for key, raw in snapshot.of(keys.PARA_LIFECYCLES).items()}
        self._unread: list[str] = []
        self._configuration = self._limits()
        self._reserved: Counter[int] = Counter()

    def _limits(self) -> dict[str, int]:
        """Return the Router's limits, or none of them if their value does not decode: the preset holds until one does."""
        try:
            return decode_configuration(self._snapshot.values.get(keys.ACTIVE_CONFIG), self._runtime)
        except UndecodableBlock as error:
            number = self._snapshot.header.number
            self._notices.append(
                f"block {number}: {error}: the limits of preset {PRESET} hold until a session begins whose limits decode"
            )
            self._unread.append(CONFIGURATION)
            return {}

    def seed(self, genesis: bytes, recent: tuple[bytes, ...]) -> Seed:
        header = self._snapshot.header
        heads = {keys.para_of(key): storage.decode_hash(raw) for key, raw in self._snapshot.of(keys.DMP_HEADS).items()}
        pending = self._pending()
        sends_signals = SIGNALS in features_of(self._runtime)
        state = {"first_block": header.number, "state": self._state(heads)}
        records = [
            *(("candidates", candidate_record(
                self._lane, header.number, index, each.candidate, each.relay_parent_number, sends_signals=sends_signals))
              for index, each in enumerate(pending)),
            ("blocks", self._block(len(pending))),
        ]  # fmt: skip
        position = Position(
            genesis,
            header.number,
            header.hash,
            self._snapshot.spec_name,
            self._snapshot.spec_version,
            header.updates_runtime,
            False,  # noqa: FBT003 - a session that began here has dropped what was pending
            (*recent, header.hash),
            tuple(Pending(each.candidate.para_id, each.candidate.commitments_hash, header.number) for each in pending),
            self._lifecycles,
            self._configuration,
            heads,
            self._all_channels(),
        )
        return Seed(state, tuple(records), position, self._configuration, tuple(self._notices), tuple(self._unread))

    def _all_channels(self) -> Channels:
        """Return channels and requests as the chain has them, those that the state leaves out included."""
        values = {keys.channel_of(key): raw for key, raw in self._snapshot.of(keys.HRMP_OPEN_REQUESTS).items()}
        listed = self._listed(keys.HRMP_OPEN_REQUESTS_LIST)
        confirmed = (each for each in listed if storage.decode_open_request(values[each]).confirmed)
        channels = map(keys.channel_of, self._snapshot.of(keys.HRMP_CHANNELS))
        closing = self._listed(keys.HRMP_CLOSE_REQUESTS_LIST)
        return Channels(frozenset(listed), frozenset(confirmed), frozenset(closing), frozenset(channels))

    def _block(self, candidates: int) -> JsonRecord:
        header = self._snapshot.header
        return {
            "lane": self._lane,
            "block": header.number,
            "parent_number": None,
            "block_hash": header.hash.hex(),
            "candidates": candidates,
            "requests": 0,
            "downward": 0,
            "included": [],
            "timed_out": [],
            "session_change": None,
        }

    def _state(self, heads: Mapping[int, bytes]) -> JsonRecord:
        channels = self._channels()
        requests = self._open_requests()
        state: JsonRecord = {
            "valid_paras": [
                {"para_id": para, "kind": para_kind(lifecycle)}
                for para, lifecycle in sorted(self._lifecycles.items())
                if is_para(lifecycle)
            ],
            "channels": channels,
            "contents": {
                channel_name(channel): [
                    {"sent_at": each.sent_at, "data": each.msg.hex()} for each in storage.decode_queue(raw)
                ]
                for channel, raw in self._by_channel(keys.HRMP_CONTENTS)
                if channel_name(channel) in channels
            },
            "digests": self._digests(),
            "watermarks": {str(para): storage.decode_u32(raw) for para, raw in self._by_para(keys.HRMP_WATERMARKS)},
            "dmq": {
                str(para): [{"sent_at": each.sent_at, "msg": each.msg.hex()} for each in queue]
                for para, queue in self._downward().items()
            },
            "dmq_heads": {str(para): head.hex() for para, head in sorted(heads.items()) if self._is_para(para)},
            "open_requests": requests,
            "close_request_set": [
                channel_name(channel)
                for channel in self._listed(keys.HRMP_CLOSE_REQUESTS_LIST)
                if channel_name(channel) in channels
            ],
        }
        upward = {
            str(para): [each.hex() for each in storage.decode_payloads(raw)]
            for para, raw in self._by_para(keys.UMP_QUEUES)
        }
        if upward:
            state["ump_queues"] = upward
        pages = self._upward_pages()
        state["balances"] = {
            str(para): {"free": 0, "reserved": amount} for para, amount in sorted(self._reserved.items()) if amount
        }
        return {name: value for name, value in state.items() if value} | pages

    def _downward(self) -> dict[int, tuple[storage.Queued, ...]]:
        """Return the downward queues of paras, which are in pages, in one value or in both."""
        of = self._snapshot.of
        queues = whole_queues(of(keys.DMP_META), of(keys.DMP_PAGES), of(keys.DMP_QUEUES))
        return {para: queue for para, queue in queues.items() if self._is_para(para)}

    def _upward_pages(self) -> JsonRecord:
        """Return the keys for upward messages in pages; none under a runtime that has none."""
        if not self._runtime.has("MessageQueue", "BookStateFor"):
            return {}
        books, pages = (self._snapshot.of(prefix) for prefix in (keys.MQ_BOOKS, keys.MQ_PAGES))
        head = self._snapshot.values.get(keys.MQ_HEAD)
        found = upward_state(books.items(), pages.items(), head, self._is_para)
        self._notices += found.notices
        return found.keys

    # --- channels ---

    def _channels(self) -> JsonRecord:
        found = {}
        for (sender, recipient), raw in self._by_channel(keys.HRMP_CHANNELS):
            channel = storage.decode_channel(raw)
            found[channel_name((sender, recipient))] = {
                "limit_used_places": channel.max_capacity,
                "limit_used_bytes": channel.max_total_size,
                "limit_message_size": channel.max_message_size,
                "mqc_head": (channel.mqc_head or bytes(32)).hex(),
                "sender_deposit": channel.sender_deposit,
                "recipient_deposit": channel.recipient_deposit,
            }
            self._reserved[sender] += channel.sender_deposit
            self._reserved[recipient] += channel.recipient_deposit
        self._check_indices()
        return found

    def _check_indices(self) -> None:
        """Raise `SeedError` unless both indices name exactly the channels that there are: a node may have left keys out."""
        there = {keys.channel_of(key) for key in self._snapshot.of(keys.HRMP_CHANNELS)}
        by_recipient = {
            (sender, keys.para_of(key))
            for key, raw in self._snapshot.of(keys.HRMP_INGRESS).items()
            for sender in storage.decode_paras(raw)
        }
        by_sender = {
            (keys.para_of(key), recipient)
            for key, raw in self._snapshot.of(keys.HRMP_EGRESS).items()
            for recipient in storage.decode_paras(raw)
        }
        for what, index in (("HrmpIngressChannelsIndex", by_recipient), ("HrmpEgressChannelsIndex", by_sender)):
            if index != there:
                sender, recipient = min(index ^ there)
                raise SeedError(
                    f"block {self._snapshot.header.number}: Hrmp.HrmpChannels and Hrmp.{what}: expected the same channels, found "
                    f"{sender}->{recipient} in one of them only"
                )

    def _open_requests(self) -> JsonRecord:
        values = {keys.channel_of(key): raw for key, raw in self._snapshot.of(keys.HRMP_OPEN_REQUESTS).items()}
        found = {}
        for sender, recipient in self._listed(keys.HRMP_OPEN_REQUESTS_LIST):
            if not (self._is_para(sender) and self._is_para(recipient)):
                self._notices.append(f"request {sender}->{recipient}: left out, a party does not exist")
                continue
            request = storage.decode_open_request(values[sender, recipient])
            given = {
                "confirmed": request.confirmed,
                "age": request.age,
                "sender_deposit": request.sender_deposit,
                "limit_used_places": request.max_capacity,
                "limit_used_bytes": request.max_total_size,
                "limit_message_size": request.max_message_size,
            }
            self._reserved[sender] += request.sender_deposit
            if (
                request.confirmed
            ):  # the chain stores no deposit of the recipient; none is taken where the sender left none
                left = self._configuration.get("hrmp_recipient_deposit", 0) if request.sender_deposit else 0
                given["recipient_deposit"] = left
                self._reserved[recipient] += left
            found[channel_name((sender, recipient))] = given
        return found

    def _digests(self) -> JsonRecord:
        return {
            str(para): [[block, list(senders)] for block, senders in storage.decode_digests(raw)]
            for para, raw in self._by_para(keys.HRMP_DIGESTS)
        }

    def _listed(self, key: bytes) -> tuple[ChannelId, ...]:
        raw = self._snapshot.values.get(key)
        return () if raw is None else storage.decode_channels(raw)

    # --- pending candidates ---

    def _pending(self) -> list[PendingCandidate]:
        """Return the pending candidates in the order in which they were backed, those of a block by para."""
        signals = self._runtime.has_signals
        found: list[PendingCandidate] = []
        for raw in self._snapshot.of(keys.PENDING_V1).values():
            found += read_pending_v1(raw, signals=signals)
        commitments = {keys.para_of(key): raw for key, raw in self._snapshot.of(keys.PENDING_COMMITMENTS).items()}
        for key, raw in self._snapshot.of(keys.PENDING).items():
            found.append(read_pending(raw, commitments[keys.para_of(key)], signals=signals))
        return sorted(found, key=lambda each: (each.backed_at, each.candidate.para_id))

    # --- keys ---

    def _is_para(self, para: int) -> bool:
        return is_para(self._lifecycles.get(para, ONBOARDING))

    def _by_para(self, prefix: bytes) -> Iterable[tuple[int, bytes]]:
        for key, raw in self._snapshot.of(prefix).items():
            para = keys.para_of(key)
            if self._is_para(para):
                yield para, raw

    def _by_channel(self, prefix: bytes) -> Iterable[tuple[ChannelId, bytes]]:
        found: dict[ChannelId, bytes] = {keys.channel_of(key): raw for key, raw in self._snapshot.of(prefix).items()}
        for (sender, recipient), raw in sorted(found.items()):
            if self._is_para(sender) and self._is_para(recipient):
                yield (sender, recipient), raw
            elif prefix == keys.HRMP_CHANNELS:
                self._notices.append(f"channel {sender}->{recipient}: left out, a party does not exist")


def seed_document(seed: Seed) -> dict[str, Any]:
    """Return what a transport begins with, as JSON: the records of the first block and the cursor after it."""
    return {"cursor": seed.position.encode().hex(), "records": [list(each) for each in seed.records]}
