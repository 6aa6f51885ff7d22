# SPDX-License-Identifier: Apache-2.0
"""A naive model of the Router: a slow, direct implementation of the rules.

It shares no code with the core and has a different design. State is plain dicts and lists in the JSON shapes of the traces, with
one list of messages per channel. Every count, size, index and set is computed by a scan when it is needed. The expected
verdicts of simulated traffic come only from this model, never from the core.

Which later features are in force in a block follows from the chain's rules by height. Numbers in brackets are sections of router_rules
unless router_profiles is named; I-nn and PR-nn are the readings chosen there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from validator.protocols.router.simulation.acceptance import CHECKS_IN_ORDER, messages_of
from validator.protocols.router.simulation.entry_points import apply_request, saved
from validator.protocols.router.simulation.hashing import ZERO_HASH, next_head
from validator.protocols.router.simulation.later_rules import REQUESTS, features_at, is_system, limit_of
from validator.protocols.router.simulation.message_queue import NaiveMessageQueue
from validator.protocols.router.simulation.refusal import Refused
from validator.protocols.router.simulation.sessions import change_session
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
        rules: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.config: dict[str, int] = dict(config)
        self.ump_weights = dict(ump_weights or {})
        self.ump_default_weight = ump_default_weight
        # A failing message is charged and consumed like any other; nothing in the Router depends on it.
        self.ump_failing_messages = list(ump_failing_messages)
        self.notifications = notifications
        self.enactment: Enactment = enactment
        self.unlimited_balances = unlimited_balances
        self.rules = list(rules)  # {"from_block", and "features" or "profile"}
        self.features: frozenset[str] = frozenset()  # in force in the current block
        self.now = 0
        self.kinds: dict[int, str] = {}  # of the valid paras
        self.outgoing: list[int] = []
        self.free: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.channels: dict[Channel, Json] = {}  # fields of a channel, and its "messages": [{sent_at, data}]
        self.requests: dict[Channel, Json] = {}
        # A counter, not a scan: the requests of an offboarded para outlive its count (1.7, I-06, I-06b).
        self.open_request_count: dict[int, int] = {}
        # Likewise: a forced clean-up may forget it (PR-17).
        self.accepted_request_count: dict[int, int] = {}
        self.closing: list[Channel] = []
        self.watermarks: dict[int, int] = {}
        self.digests: dict[int, list[tuple[int, int]]] = {}  # recipient: (block, sender) in order of enactment
        self.dmq: dict[int, list[Json]] = {}
        self.dmq_heads: dict[int, str] = {}
        self.ump: dict[int, list[str]] = {}
        self.next_dispatch_round_start_with: int | None = None
        self.queue: NaiveMessageQueue | None = None  # in place of the two above once message_queue is in force
        self.serviced: list[list[Any]] = []  # handed over by this block's requests
        self.pending: list[Json] = []  # accepted and not yet enacted: {"backed_at", "candidate"}
        for para in genesis_paras:
            self.onboard(para)

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

    def has(self, feature: str) -> bool:
        """Return whether a feature is in force in the current block."""
        return feature in self.features or (self.notifications and feature == "hrmp_notifications")

    def limit(self, key: str) -> int:
        """Return a limit of the configuration; later ones have defaults."""
        return limit_of(self.config, key)

    def needs_dispatch(self) -> list[int]:
        """Return the paras with upward messages waiting, ascending."""
        if self.queue is not None:
            return sorted(self.queue.ring)
        return sorted(para for para, queue in self.ump.items() if queue)

    def upward_waiting(self, para: int) -> list[str]:
        """Return the para's upward messages that are not processed, those set aside included."""
        return self.ump.get(para, []) if self.queue is None else self.queue.unprocessed(para)

    def longest_downward_queue(self) -> int:
        """Return the length that a downward queue may have for one more message to fit (router_profiles 3.7)."""
        size = self.config["max_downward_message_size"]
        return 33554432 // size if size else 0

    def deposits(self, channel: Channel) -> tuple[int, int]:
        """Return what a request for the channel and its acceptance take now."""
        if self.has("system_channels_without_deposits") and any(is_system(para) for para in channel):
            return 0, 0
        return self.config["hrmp_sender_deposit"], self.config["hrmp_recipient_deposit"]

    def egress(self, para: int) -> list[int]:
        """Return the recipients of the para's channels, ascending."""
        return sorted(recipient for sender, recipient in self.channels if sender == para)

    def ingress(self, para: int) -> list[int]:
        """Return the senders of the channels to the para, ascending."""
        return sorted(sender for sender, recipient in self.channels if recipient == para)

    def is_valid(self, para: int) -> bool:
        """Return whether a para is valid; on the chain one that is scheduled for offboarding is not (RP-01)."""
        return para in self.kinds and not (self.has("as_the_chain") and para in self.outgoing)

    def used_places(self, channel: Channel) -> int:
        """Return the number of messages pending in a channel."""
        return len(self.channels[channel]["messages"])

    def used_bytes(self, channel: Channel) -> int:
        """Return the bytes pending in a channel."""
        return sum(size_of(message["data"]) for message in self.channels[channel]["messages"])

    def channel_limit(self, para: int, direction: Literal["inbound", "outbound"]) -> int:
        """Return how many channels the para may have. An id that is not a valid para counts as a parachain (1.6)."""
        kind = "parathread" if self.kinds.get(para) == "parathread" else "parachain"
        if self.has("single_channel_limit"):
            kind = "parachain"
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
        self.features = features_at(self.rules, block)
        self.serviced = []
        if self.has("message_queue") and self.queue is None:
            self._begin_message_queue()
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

    def _begin_message_queue(self) -> None:
        """Move the queues over in the order of the next round under the older rules (PR-07)."""
        self.queue = NaiveMessageQueue()
        ring = sorted(para for para, queue in self.ump.items() if queue)
        first = self.next_dispatch_round_start_with
        if first in ring:
            ring = ring[ring.index(first) :] + ring[: ring.index(first)]
        for para in ring:
            for payload in self.ump[para]:
                self.queue.enact(para, payload, self.limit("message_queue_heap_size"))
        self.ump = {}
        self.next_dispatch_round_start_with = None

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
        if self.queue is None:
            self.ump[para] = self.ump.get(para, []) + messages_of(self, candidate)
        else:
            for payload in messages_of(self, candidate):
                self.queue.enact(para, payload, self.limit("message_queue_heap_size"))
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
            # two candidates of a para in one block are listed once (1.11), but on the chain twice (chain_2026 3.18)
            if (self.now, para) not in digest or self.has("as_the_chain"):
                digest.append((self.now, para))

    # -- upward dispatch ----------------------------------------------------------------------------------------

    def dispatch_round(self) -> list[list[Any]]:
        """Run the block's round; return [[para, payload], ...], after what requests had handed over (1.5, router_profiles 3.9)."""
        budget = self.config["preferred_dispatchable_upward_messages_step_weight"]
        if self.queue is not None:
            return self.serviced + self.queue.serve(budget, self.upward_weight)
        return self._round_of_single_messages(budget)

    def _round_of_single_messages(self, budget: int) -> list[list[Any]]:
        """Dispatch one message per para in turn until the budget is used up (1.5)."""
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
        """Queue a downward message to any para id (I-20), unless later rules want a head. Reject one that is too large."""
        para, payload, limit = message["para_id"], message["msg"], self.config["max_downward_message_size"]
        if size_of(payload) > limit:
            return failed("ExceedsMaxMessageSize")
        if self.has("dmq_length_limit") and len(self.dmq.get(para, [])) > self.longest_downward_queue():
            return failed("ExceedsMaxMessageSize")
        if self.has("downward_needs_head") and para not in self.kinds:
            return failed("Unroutable")
        self.dmq.setdefault(para, []).append({"sent_at": self.now, "msg": payload})
        self.dmq_heads[para] = next_head(self.dmq_heads.get(para, ZERO_HASH), self.now, payload)
        return accepted()

    def notify(self, para: int, body: str) -> None:
        """Queue a notification for the other party of a request; a refused one leaves no trace (router_profiles 3.1, 3.2)."""
        if not self.has("hrmp_notifications"):
            return
        if self.has("versioned_notifications"):
            version = self.limit("hrmp_notification_xcm_version")
            body = f"{version:02x}" + ("04" if version >= 2 else "") + body
        self.downward({"para_id": para, "msg": body})

    # -- requests -----------------------------------------------------------------------------------------------

    def request(self, request: Mapping[str, Any]) -> Json:
        """Apply one entry point, or return the first check that fails; then nothing of its earlier parts stays."""
        before = saved(self) if request["kind"] in REQUESTS else {}
        try:
            apply_request(self, request)
        except Refused as refused:
            vars(self).update(before)
            return refused.result
        return accepted()

    def count_one_request_less(self, sender: int) -> None:
        """Lower the count of the sender's open requests; it never goes below 0 (I-06)."""
        self.open_request_count[sender] = max(0, self.open_request_count.get(sender, 0) - 1)

    def count_one_acceptance_less(self, recipient: int) -> None:
        """Lower the count of the confirmed requests to the recipient; it never goes below 0."""
        self.accepted_request_count[recipient] = max(0, self.accepted_request_count.get(recipient, 0) - 1)

    # -- session change -----------------------------------------------------------------------------------------

    def session_change(self, change: Mapping[str, Any]) -> None:
        """End the session, as the last step of its block (1.7)."""
        change_session(self, change)

    def onboard(self, para: Mapping[str, Any]) -> None:
        """Make a para valid. Its account outlives it, because its deposits are returned to it: a new balance adds to the old one."""
        para_id = para["para_id"]
        self.kinds[para_id] = para["kind"]
        self.free[para_id] = self.free.get(para_id, 0) + para["balance"]
        self.reserved.setdefault(para_id, 0)

    # -- ledger -------------------------------------------------------------------------------------------------

    def can_reserve(self, para: int, amount: int) -> bool:
        """Return whether the free balance covers the amount and the existential deposit; equality is enough (1.6, chain_2026 3.17)."""
        if self.unlimited_balances or amount <= 0:
            return True
        return self.free.get(para, 0) - amount >= self.limit("existential_deposit")

    def reserve(self, para: int, amount: int) -> None:
        """Move an amount from the para's free balance to its deposits."""
        self.free[para] = self.free.get(para, 0) - amount
        self.reserved[para] = self.reserved.get(para, 0) + amount

    def unreserve(self, para: int, amount: int) -> None:
        """Move an amount back; more than is reserved cannot be."""
        moved = min(amount, self.reserved.get(para, 0))
        self.free[para] = self.free.get(para, 0) + moved
        self.reserved[para] = self.reserved.get(para, 0) - moved
