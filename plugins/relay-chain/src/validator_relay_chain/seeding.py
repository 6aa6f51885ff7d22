# SPDX-License-Identifier: Apache-2.0
"""Turns a snapshot into what a lane begins with: its STATE.json, the candidates that were pending, and the position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from validator.plugin.api import DecodeError
from validator_relay_chain import keys, paras, storage
from validator_relay_chain.candidates import PendingCandidate, read_pending, read_pending_v1
from validator_relay_chain.configuration import CONFIGURATION, PRESET, decode_configuration
from validator_relay_chain.convert import JsonRecord, candidate_record
from validator_relay_chain.downward import whole_queues
from validator_relay_chain.errors import SeedError, UndecodableBlock
from validator_relay_chain.hidden import Channels
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.position import Pending, Position
from validator_relay_chain.rules import SIGNALS, features_of
from validator_relay_chain.snapshot import Snapshot
from validator_relay_chain.upward import upward_state

ChannelId = tuple[int, int]


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
                {"para_id": para, "kind": paras.kind_of(lifecycle)}
                for para, lifecycle in sorted(self._lifecycles.items())
                if paras.is_para(lifecycle)
            ],
            "channels": channels,
            "contents": {
                _name(channel): [
                    {"sent_at": each.sent_at, "data": each.msg.hex()} for each in storage.decode_queue(raw)
                ]
                for channel, raw in self._by_channel(keys.HRMP_CONTENTS)
                if _name(channel) in channels
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
                _name(channel) for channel in self._listed(keys.HRMP_CLOSE_REQUESTS_LIST) if _name(channel) in channels
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
            found[_name((sender, recipient))] = {
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
            found[_name((sender, recipient))] = given
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
        return paras.is_para(self._lifecycles.get(para, paras.ONBOARDING))

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


def _name(channel: ChannelId) -> str:
    return f"{channel[0]}->{channel[1]}"


def seed_document(seed: Seed) -> dict[str, Any]:
    """Return what a transport begins with, as JSON: the records of the first block and the cursor after it."""
    return {"cursor": seed.position.encode().hex(), "records": [list(each) for each in seed.records]}
