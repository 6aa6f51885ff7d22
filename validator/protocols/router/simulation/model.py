# SPDX-License-Identifier: Apache-2.0
"""A naive model of the Router: a slow, direct implementation of the rules.

It shares no code with the core and has a different design. State is plain dicts and lists in the JSON shapes of the traces, with
one list of messages per channel. Every count, size, index and set is computed by a scan when it is needed. The expected
verdicts of simulated traffic come only from this model, never from the core.

Numbers in brackets are sections of the Router's rules; I-nn are the readings chosen there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from validator.protocols.router.simulation.acceptance import CHECKS_IN_ORDER
from validator.protocols.router.simulation.hashing import (
    ZERO_HASH,
    accepted_notification,
    closing_notification,
    next_head,
    open_notification,
)
from validator.protocols.router.simulation.snapshot import load_state, router_state
from validator.simulate import Json, accepted, failed, size_of

Channel = tuple[int, int]
Enactment = Literal["immediate", "on-inclusion"]


class NaiveRouter:
    """The Router of one relay chain. Callers drive it step by step, in the order of a block.

    The order is `begin_block`, then every `request`, `downward` and `candidate`, then `dispatch_round`, then
    `session_change` if the block has one. Inputs and results have the JSON shapes of the traces.
    """

    def __init__(
        self,
        config: Mapping[str, int],
        genesis_paras: Iterable[Mapping[str, Any]],
        *,
        ump_weights: Mapping[str, int] | None = None,
        ump_default_weight: int = 1,
        ump_failing_messages: Sequence[str] = (),
        notifications: bool = False,
        enactment: Enactment = "immediate",
        unlimited_balances: bool = False,
    ) -> None:
        self.config: dict[str, int] = dict(config)
        self.ump_weights = dict(ump_weights or {})
        self.ump_default_weight = ump_default_weight
        # A failing message is charged and consumed like any other; nothing in the Router depends on it.
        self.ump_failing_messages = list(ump_failing_messages)
        self.notifications = notifications
        self.enactment: Enactment = enactment
        self.unlimited_balances = unlimited_balances
        self.now = 0
        self.kinds: dict[int, str] = {}  # of the valid paras
        self.outgoing: list[int] = []
        self.free: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.channels: dict[Channel, Json] = {}  # fields of a channel, and its "messages": [{sent_at, data}]
        self.requests: dict[Channel, Json] = {}
        # A counter, not a scan: the requests of an offboarded para outlive its count (1.7, I-06, I-06b).
        self.open_request_count: dict[int, int] = {}
        self.closing: list[Channel] = []
        self.watermarks: dict[int, int] = {}
        self.digests: dict[int, list[tuple[int, int]]] = {}  # recipient: (block, sender) in order of enactment
        self.dmq: dict[int, list[Json]] = {}
        self.dmq_heads: dict[int, str] = {}
        self.ump: dict[int, list[str]] = {}
        self.next_dispatch_round_start_with: int | None = None
        self.pending: list[Json] = []  # accepted and not yet enacted: {"backed_at", "candidate"}
        for para in genesis_paras:
            self._onboard(para)

    @classmethod
    def from_state(cls, config: Mapping[str, int], state: Mapping[str, Any], **settings: Any) -> NaiveRouter:
        """Return a Router that starts from the state keys of the traces; all its paras are parachains."""
        router = cls(config, [], **settings)
        load_state(router, state)
        return router

    def state(self) -> Json:
        """Return all state keys of the traces. Absent entries are left out, never 0 or []."""
        return router_state(self)

    # -- computed on demand -------------------------------------------------------------------------------------

    def needs_dispatch(self) -> list[int]:
        """Return the paras with upward messages waiting, ascending."""
        return sorted(para for para, queue in self.ump.items() if queue)

    def egress(self, para: int) -> list[int]:
        """Return the recipients of the para's channels, ascending."""
        return sorted(recipient for sender, recipient in self.channels if sender == para)

    def ingress(self, para: int) -> list[int]:
        """Return the senders of the channels to the para, ascending."""
        return sorted(sender for sender, recipient in self.channels if recipient == para)

    def accepted_request_count(self, para: int) -> int:
        """Return how many requests to the para are confirmed."""
        return sum(recipient == para and request["confirmed"] for (_, recipient), request in self.requests.items())

    def used_places(self, channel: Channel) -> int:
        """Return the number of messages pending in a channel."""
        return len(self.channels[channel]["messages"])

    def used_bytes(self, channel: Channel) -> int:
        """Return the bytes pending in a channel."""
        return sum(size_of(message["data"]) for message in self.channels[channel]["messages"])

    def channel_limit(self, para: int, direction: Literal["inbound", "outbound"]) -> int:
        """Return how many channels the para may have. An id that is not a valid para counts as a parachain (1.6)."""
        kind = "parathread" if self.kinds.get(para) == "parathread" else "parachain"
        return self.config[f"hrmp_max_{kind}_{direction}_channels"]

    def upward_weight(self, payload: str) -> int:
        """Return the weight that dispatching the message uses."""
        return self.ump_weights.get(payload, self.ump_default_weight)

    # -- the block ----------------------------------------------------------------------------------------------

    def begin_block(
        self, block: int, included: Sequence[Mapping[str, Any]] = (), timed_out: Sequence[Mapping[str, Any]] = ()
    ) -> list[Json]:
        """Enact included candidates and drop timed-out ones. Return one result for each entry, `included` first."""
        self.now = block
        results = []
        for entry in included:
            found = self._take_pending(entry)
            if found is None:
                results.append(failed("Inclusion/CandidateNotPending", para_id=entry["para_id"]))
            else:
                self._enact(found["candidate"])
                results.append(accepted())
        for entry in timed_out:
            found = self._take_pending(entry)
            results.append(accepted() if found else failed("Timeout/CandidateNotPending", para_id=entry["para_id"]))
        return results

    def _take_pending(self, entry: Mapping[str, Any]) -> Json | None:
        for position, item in enumerate(self.pending):
            named = item["candidate"]["para_id"] == entry["para_id"]
            if named and entry.get("backed_at") in (None, item["backed_at"]):
                return self.pending.pop(position)
        return None

    # -- candidates ---------------------------------------------------------------------------------------------

    def candidate(self, candidate: Json, enactment: Enactment | None = None) -> Json:
        """Check a candidate in the order downward, upward, watermark, outbound (1.3, I-13); return the first violation if any.

        An accepted candidate is enacted at once. If the chain enacts on inclusion, it waits until `begin_block` includes it.
        """
        for check in CHECKS_IN_ORDER:
            result = check(self, candidate)
            if result is not None:
                return result
        if (enactment or self.enactment) == "immediate":
            self._enact(candidate)
        else:
            self.pending.append({"backed_at": self.now, "candidate": candidate})
        return accepted()

    def _enact(self, candidate: Json) -> None:
        para, watermark = candidate["para_id"], candidate["hrmp_watermark"]
        self.dmq[para] = self.dmq.get(para, [])[candidate["processed_downward_messages"] :]
        self.ump[para] = self.ump.get(para, []) + candidate["upward_messages"]
        # A waiting message's block is always in its recipient's digest, so the digest need not be consulted.
        for (_, recipient), channel in self.channels.items():
            if recipient == para and channel["messages"]:
                channel["messages"] = [m for m in channel["messages"] if m["sent_at"] > watermark]
        self.digests[para] = [entry for entry in self.digests.get(para, []) if entry[0] > watermark]
        self.watermarks[para] = watermark
        for message in candidate["horizontal_messages"]:
            target = self.channels.get((para, message["recipient"]))
            if target is None:
                continue  # closed between acceptance and enactment: skipped silently (I-20b)
            target["messages"].append({"sent_at": self.now, "data": message["data"]})
            target["mqc_head"] = next_head(target["mqc_head"], self.now, message["data"])
            digest = self.digests.setdefault(message["recipient"], [])
            if (self.now, para) not in digest:  # two candidates of a para in one block are listed once (1.11)
                digest.append((self.now, para))

    # -- upward dispatch ----------------------------------------------------------------------------------------

    def dispatch_round(self) -> list[list[Any]]:
        """Dispatch one message per para in turn until the budget is used up; return [[para, payload], ...] (1.5)."""
        budget = self.config["preferred_dispatchable_upward_messages_step_weight"]
        used, dispatched = 0, []
        waiting = self.needs_dispatch()
        turn = self.next_dispatch_round_start_with
        if turn not in waiting:
            turn = min(waiting, default=None)
        while turn is not None and used < budget:
            payload = self.ump[turn].pop(0)
            used += self.upward_weight(payload)
            dispatched.append([turn, payload])
            waiting = self.needs_dispatch()
            turn = min((para for para in waiting if para > turn), default=min(waiting, default=None))
        self.next_dispatch_round_start_with = turn
        return dispatched

    # -- downward messages --------------------------------------------------------------------------------------

    def downward(self, message: Mapping[str, Any]) -> Json:
        """Queue a downward message to any para id (I-20). Reject one that is too large."""
        if size_of(message["msg"]) > self.config["max_downward_message_size"]:
            return failed("ExceedsMaxMessageSize")
        para, payload = message["para_id"], message["msg"]
        self.dmq.setdefault(para, []).append({"sent_at": self.now, "msg": payload})
        self.dmq_heads[para] = next_head(self.dmq_heads.get(para, ZERO_HASH), self.now, payload)
        return accepted()

    def _notify(self, para: int, payload: str) -> None:
        if self.notifications:
            self.downward(
                {"para_id": para, "msg": payload}
            )  # a notification that is too large is dropped silently (1.6)

    # -- channel requests ---------------------------------------------------------------------------------------

    def request(self, request: Mapping[str, Any]) -> Json:
        """Apply one entry point, or return the first check that fails (order of router.txt, I-02, I-14)."""
        kind = request["kind"]
        if kind == "init_open_channel":
            return self._init_open_channel(request)
        if kind == "accept_open_channel":
            return self._accept_open_channel(request["origin"], request["sender"])
        if kind == "close_channel":
            sender, recipient = request["channel"]
            return self._close_channel(request["origin"], (sender, recipient))
        if kind == "schedule_para_cleanup":
            self.outgoing = sorted({*self.outgoing, request["para_id"]})
            return accepted()
        raise ValueError(f"unknown kind of request: {kind!r}")

    def _init_open_channel(self, request: Mapping[str, Any]) -> Json:
        origin, recipient = request["origin"], request["recipient"]
        places, size = request["max_places"], request["max_message_size"]
        deposit = self.config["hrmp_sender_deposit"]
        channels = len(self.egress(origin)) + self.open_request_count.get(origin, 0)
        checks = [
            (origin == recipient, "OpenHrmpChannelToSelf"),
            (places == 0, "OpenHrmpChannelZeroCapacity"),
            (places > self.config["hrmp_channel_max_places"], "OpenHrmpChannelCapacityExceedsLimit"),
            (size == 0, "OpenHrmpChannelZeroMessageSize"),
            (size > self.config["hrmp_channel_max_message_size"], "OpenHrmpChannelMessageSizeExceedsLimit"),
            (recipient not in self.kinds, "OpenHrmpChannelInvalidRecipient"),
            ((origin, recipient) in self.channels, "OpenHrmpChannelAlreadyExists"),
            ((origin, recipient) in self.requests, "OpenHrmpChannelAlreadyRequested"),
            (channels >= self.channel_limit(origin, "outbound"), "OpenHrmpChannelLimitExceeded"),
            (not self.can_reserve(origin, deposit), "InsufficientBalance"),
        ]
        for broken, error in checks:
            if broken:
                return failed(error)
        self._reserve(origin, deposit)
        self.open_request_count[origin] = self.open_request_count.get(origin, 0) + 1
        self.requests[(origin, recipient)] = {
            "confirmed": False,
            "age": 0,
            "sender_deposit": deposit,
            "limit_used_places": places,
            "limit_used_bytes": self.config["hrmp_channel_max_size"],
            "limit_message_size": size,
        }
        self._notify(recipient, open_notification(origin, size, places))
        return accepted()

    def _accept_open_channel(self, origin: int, sender: int) -> Json:
        request = self.requests.get((sender, origin))
        if request is None:
            return failed("AcceptHrmpChannelDoesntExist")
        if request["confirmed"]:
            return failed("AcceptHrmpChannelAlreadyConfirmed")
        channels = len(self.ingress(origin)) + self.accepted_request_count(origin)
        if channels >= self.channel_limit(origin, "inbound"):
            return failed("AcceptHrmpChannelLimitExceeded")
        deposit = self.config["hrmp_recipient_deposit"]
        if not self.can_reserve(origin, deposit):
            return failed("InsufficientBalance")
        self._reserve(origin, deposit)
        request["confirmed"] = True
        self._notify(sender, accepted_notification(origin))
        return accepted()

    def _close_channel(self, origin: int, channel: Channel) -> Json:
        if origin not in channel:
            return failed("CloseHrmpChannelUnauthorized")
        if channel not in self.channels:
            return failed("CloseHrmpChannelDoesntExist")
        if channel in self.closing:
            return failed("CloseHrmpChannelAlreadyUnderway")
        self.closing.append(channel)
        other = channel[1] if origin == channel[0] else channel[0]
        self._notify(other, closing_notification(origin, *channel))
        return accepted()

    # -- session change -----------------------------------------------------------------------------------------

    def session_change(self, change: Mapping[str, Any]) -> None:
        """Offboard and onboard, then age, expire and open requests, then close channels (1.7). This is a block's last step."""
        before = self.config
        self.config = {**before, **(change.get("new_config") or {})}
        leaving = sorted({*self.outgoing, *(change.get("outgoing") or [])})
        self.outgoing = []
        for para in leaving:
            self.kinds.pop(para, None)
        for para in change.get("onboarding") or []:
            self._onboard(para)
        for para in leaving:
            self._clean_up(para)
        for pair in sorted(self.requests):
            self._resolve_request(pair, before)
        for pair in self.closing:
            self._remove_channel(pair)
        self.closing = []

    def _onboard(self, para: Mapping[str, Any]) -> None:
        para_id = para["para_id"]
        self.kinds[para_id] = para["kind"]
        # An account outlives its para, because its deposits are returned to it. So a new balance adds to the old one.
        self.free[para_id] = self.free.get(para_id, 0) + para["balance"]
        self.reserved.setdefault(para_id, 0)

    def _clean_up(self, para: int) -> None:
        """Remove an offboarded para's storage (1.8, I-08). Its requests stay and end by their own rules."""
        for pair in sorted(self.channels):
            if para in pair:
                self._remove_channel(pair)
        per_para: list[dict[int, Any]] = [self.dmq, self.dmq_heads, self.ump, self.open_request_count]
        for table in [*per_para, self.watermarks, self.digests]:
            table.pop(para, None)
        if self.next_dispatch_round_start_with == para:
            self.next_dispatch_round_start_with = None

    def _resolve_request(self, pair: Channel, config: Mapping[str, int]) -> None:
        sender, recipient = pair
        request = self.requests[pair]
        if not request["confirmed"]:
            request["age"] += 1
            if request["age"] < config["hrmp_open_request_ttl"]:
                return
            self._unreserve(sender, request["sender_deposit"])
        elif sender in self.kinds and recipient in self.kinds:
            kept = {key: value for key, value in request.items() if key not in ("confirmed", "age")}
            deposit = config["hrmp_recipient_deposit"]
            self.channels[pair] = {**kept, "recipient_deposit": deposit, "mqc_head": ZERO_HASH, "messages": []}
        else:  # a party was offboarded: both deposits are returned (I-07)
            self._unreserve(sender, request["sender_deposit"])
            self._unreserve(recipient, config["hrmp_recipient_deposit"])
        del self.requests[pair]
        self.open_request_count[sender] = max(0, self.open_request_count.get(sender, 0) - 1)

    def _remove_channel(self, pair: Channel) -> None:
        channel = self.channels.pop(pair, None)
        if channel is not None:
            self._unreserve(pair[0], channel["sender_deposit"])
            self._unreserve(pair[1], channel["recipient_deposit"])

    # -- ledger -------------------------------------------------------------------------------------------------

    def can_reserve(self, para: int, amount: int) -> bool:
        """Return whether the free balance covers the amount; equality is enough (1.6)."""
        return self.unlimited_balances or self.free.get(para, 0) >= amount

    def _reserve(self, para: int, amount: int) -> None:
        self.free[para] = self.free.get(para, 0) - amount
        self.reserved[para] = self.reserved.get(para, 0) + amount

    def _unreserve(self, para: int, amount: int) -> None:
        moved = min(amount, self.reserved.get(para, 0))
        self.free[para] = self.free.get(para, 0) + moved
        self.reserved[para] = self.reserved.get(para, 0) - moved
