# SPDX-License-Identifier: Apache-2.0
"""A naive model of the Router: a slow, direct implementation of the rules.

It shares no code with the core and has a different design. State is plain dicts and lists in the JSON shapes of the traces, with
one list of messages per channel. Every count, size, index and set is computed by a scan when it is needed. The expected
verdicts of simulated traffic come only from this model, never from the core.

Which later features are in force in a block follows from the chain's rules by height. Numbers in brackets are sections of router_rules
unless router_profiles or chain_2026 is named; I-nn and PR-nn are the readings chosen there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from validator_simulators import Json, accepted, compact, failed, message_range, size_of
from validator_simulators import next_head as next_link
from validator_simulators.router.later_rules import FEATURES, REQUESTS, features_at, is_system, limit_of


class Refused(Exception):
    """A broken rule, with the result that names it."""

    def __init__(self, kind: str, **fields: Any) -> None:
        super().__init__(kind)
        self.result: Json = failed(kind, **fields)


ZERO_HASH = "00" * 32


def next_head(previous: str, block: int, payload: str) -> str:
    """Return the head of a message queue chain after one more message; hashes and payload are hex (1.2)."""
    return next_link(bytes.fromhex(previous), block, bytes.fromhex(payload)).hex()


def open_notification(sender: int, max_message_size: int, max_places: int) -> str:
    """Return HrmpNewChannelOpenRequest, queued for the recipient of a new request (1.6)."""
    return (b"\x07" + compact(sender) + compact(max_message_size) + compact(max_places)).hex()


def accepted_notification(recipient: int) -> str:
    """Return HrmpChannelAccepted, queued for the sender of an accepted request (1.6)."""
    return (b"\x08" + compact(recipient)).hex()


def closing_notification(initiator: int, sender: int, recipient: int) -> str:
    """Return HrmpChannelClosing, queued for the party that did not ask for the closure (1.6)."""
    return (b"\x09" + compact(initiator) + compact(sender) + compact(recipient)).hex()


def relay_parent_of(router: NaiveRouter, candidate: Json) -> int:
    """Return the block number of the candidate's relay parent: the parent block unless it says otherwise."""
    given: int | None = candidate.get("relay_parent_number")
    return router.now - 1 if given is None else given


def messages_of(router: NaiveRouter, candidate: Json) -> list[str]:
    """Return the upward messages that are messages: under ump_signals those before the first empty one."""
    messages: list[str] = candidate["upward_messages"]
    if router.has("ump_signals") and "" in messages:
        return messages[: messages.index("")]
    return messages


def signals_of(router: NaiveRouter, candidate: Json) -> list[str]:
    """Return the entries behind the first empty upward message, under ump_signals."""
    messages: list[str] = candidate["upward_messages"]
    return messages[len(messages_of(router, candidate)) + 1 :]


def check_signals(router: NaiveRouter, candidate: Json) -> Json | None:
    """Check what follows the separator: one signal, or one of each kind under approved_peer_signal (chain_2026 3.14, 3.15)."""
    entries = signals_of(router, candidate)
    both = router.has("approved_peer_signal")
    limit = 2 if both else 1
    if len(entries) > 1 and not both:
        return failed("UmpSignals/TooMany", count=len(entries), limit=limit)
    kinds: list[str] = []
    for idx, entry in enumerate(entries[:limit]):
        kind = _kind_of_signal(entry)
        if kind is None or (kind == "01" and not both):
            return failed("UmpSignals/Undecodable", idx=idx)
        if kind in kinds:
            return failed("UmpSignals/Duplicate", idx=idx)
        kinds.append(kind)
    return failed("UmpSignals/TooMany", count=len(entries), limit=limit) if len(entries) > limit else None


def _kind_of_signal(entry: str) -> str | None:
    """Return the first byte of a signal: 00 with two bytes behind it, or 01 with a length of at most 64 and as many bytes; else None."""
    kind, rest = entry[:2], bytes.fromhex(entry[2:])
    if kind == "00":
        return kind if len(rest) >= 2 else None
    if kind != "01" or not rest:
        return None
    if rest[0] % 4 == 0:  # lengths below 64 take one byte
        return kind if len(rest) > rest[0] // 4 else None
    return kind if rest[:2] == b"\x01\x01" and len(rest) >= 2 + 64 else None


def check_downward(router: NaiveRouter, candidate: Json) -> Json | None:
    """Check that waiting downward messages are processed, and no more than the queue holds.

    Under dmp_by_relay_parent a para need not process what its relay parent had not seen (router_profiles 3.10).
    """
    group = "ProcessedDownwardMessages/"
    processed = candidate["processed_downward_messages"]
    queue = router.dmq.get(candidate["para_id"], [])
    if queue and processed == 0:
        seen = queue[0]["sent_at"] <= relay_parent_of(router, candidate)
        if seen or not router.has("dmp_by_relay_parent"):
            return failed(group + "AdvancementRule")
    if processed > len(queue):
        return failed(group + "Underflow", processed_downward_messages=processed, dmq_length=len(queue))
    return None


def check_upward(router: NaiveRouter, candidate: Json) -> Json | None:
    """Check number, sizes and the room in the queue; the order of the checks depends on message_queue (I-18, router_profiles 3.9)."""
    if router.has("message_queue"):
        return _offboarding(router, candidate) or _first_broken(router, candidate, "number", "count", "size and bytes")
    return _first_broken(router, candidate, "number", "size", "count", "bytes")


def _offboarding(router: NaiveRouter, candidate: Json) -> Json | None:
    if candidate["para_id"] in router.outgoing and messages_of(router, candidate):
        return failed("UpwardMessages/IsOffboarding")
    return None


def _first_broken(router: NaiveRouter, candidate: Json, *order: str) -> Json | None:
    for check in order:
        result = _UPWARD[check](router, router.upward_waiting(candidate["para_id"]), messages_of(router, candidate))
        if result is not None:
            return result
    return None


def _number(router: NaiveRouter, _waiting: list[str], messages: list[str]) -> Json | None:
    permitted = router.config["max_upward_message_num_per_candidate"]
    if len(messages) > permitted:
        return failed("UpwardMessages/MoreMessagesThanPermitted", sent=len(messages), permitted=permitted)
    return None


def _sizes(router: NaiveRouter, _waiting: list[str], messages: list[str]) -> Json | None:
    max_size = router.config["max_upward_message_size"]
    for idx, message in enumerate(messages):
        if size_of(message) > max_size:
            return failed("UpwardMessages/MessageSize", idx=idx, msg_size=size_of(message), max_size=max_size)
    return None


def _count(router: NaiveRouter, waiting: list[str], messages: list[str]) -> Json | None:
    limit = router.config["max_upward_queue_count"]
    count = len(waiting) + len(messages)
    return failed("UpwardMessages/CapacityExceeded", count=count, limit=limit) if count > limit else None


def _bytes(router: NaiveRouter, waiting: list[str], messages: list[str]) -> Json | None:
    limit = router.config["max_upward_queue_size"]
    total_size = sum(map(size_of, waiting + messages))
    return (
        failed("UpwardMessages/TotalSizeExceeded", total_size=total_size, limit=limit) if total_size > limit else None
    )


def _sizes_and_bytes(router: NaiveRouter, waiting: list[str], messages: list[str]) -> Json | None:
    """Check each message's own size, then the bytes with it, before the next message."""
    max_size, limit = router.config["max_upward_message_size"], router.config["max_upward_queue_size"]
    total_size = sum(map(size_of, waiting))
    for idx, message in enumerate(messages):
        if size_of(message) > max_size:
            return failed("UpwardMessages/MessageSize", idx=idx, msg_size=size_of(message), max_size=max_size)
        total_size += size_of(message)
        if total_size > limit:
            return failed("UpwardMessages/TotalSizeExceeded", total_size=total_size, limit=limit)
    return None


_UPWARD = {"number": _number, "size": _sizes, "count": _count, "bytes": _bytes, "size and bytes": _sizes_and_bytes}


def check_watermark(router: NaiveRouter, candidate: Json) -> Json | None:
    """Check that the watermark advances, to the relay parent or to a block with messages (I-12, router_profiles 3.8)."""
    group = "HrmpWatermark/"
    para, new = candidate["para_id"], candidate["hrmp_watermark"]
    relay_parent = relay_parent_of(router, candidate)
    last = router.watermarks.get(para)
    stands = last is not None and new <= last
    ahead = failed(group + "AheadRelayParent", new_watermark=new, relay_chain_parent_number=relay_parent)
    if router.has("relaxed_watermark"):
        if new == relay_parent:
            return None
        if new > relay_parent:
            return ahead
        if new == last and router.has("watermark_may_stay"):
            return None
    if stands:
        return failed(group + "AdvancementRule", new_watermark=new, last_watermark=last)
    if new > relay_parent:
        return ahead
    if new < relay_parent and all(block != new for block, _ in router.digests.get(para, [])):
        return failed(group + "LandsOnBlockWithNoMessages", new_watermark=new)
    return None


def check_outbound(router: NaiveRouter, candidate: Json) -> Json | None:
    """Check the number, then for each message: order (I-01), channel, size, bytes and places."""
    group = "OutboundHrmp/"
    messages = candidate["horizontal_messages"]
    permitted = router.config["hrmp_max_message_num_per_candidate"]
    if len(messages) > permitted:
        return failed(group + "MoreMessagesThanPermitted", sent=len(messages), permitted=permitted)
    for idx, message in enumerate(messages):
        sender, recipient, size = candidate["para_id"], message["recipient"], size_of(message["data"])
        if idx > 0 and recipient <= messages[idx - 1]["recipient"]:
            return failed(group + "NotSorted", idx=idx)
        channel = router.channels.get((sender, recipient))
        if channel is None:
            channel_id = {"sender": sender, "recipient": recipient}
            return failed(group + "NoSuchChannel", idx=idx, channel_id=channel_id)
        limit = channel["limit_message_size"]
        if size > limit:
            return failed(group + "MaxMessageSizeExceeded", idx=idx, msg_size=size, max_size=limit)
        limit = channel["limit_used_bytes"]
        total_size = router.used_bytes((sender, recipient)) + size
        if total_size > limit:
            return failed(group + "TotalSizeExceeded", idx=idx, total_size=total_size, limit=limit)
        limit = channel["limit_used_places"]
        count = router.used_places((sender, recipient)) + 1
        if count > limit:
            return failed(group + "CapacityExceeded", idx=idx, count=count, limit=limit)
    return None


# I-13: the order of the chain's code, not of the guide.
CHECKS_IN_ORDER = (check_signals, check_downward, check_upward, check_watermark, check_outbound)


OVERHEAD = 5  # bytes of the heap that a message takes besides its payload
Stage = Literal["waiting", "aside", "processed"]


class NaiveMessageQueue:
    """The books of all paras, and the ring of those with waiting messages, from its head on."""

    def __init__(self) -> None:
        self.messages: dict[
            int, list[Json]
        ] = {}  # in order: {"page", "index", "msg", "stage"}; those of existing pages
        self.ends: dict[int, int] = {}
        self.ring: list[int] = []

    # -- computed on demand ---------------------------------------------------------------------------------------

    def of_stage(self, para: int, *stages: Stage) -> list[Json]:
        """Return the para's messages that are at one of the stages, in order."""
        return [message for message in self.messages.get(para, []) if message["stage"] in stages]

    def waiting(self, para: int) -> list[str]:
        """Return the payloads of the para's messages that wait, in order."""
        return [message["msg"] for message in self.of_stage(para, "waiting")]

    def unprocessed(self, para: int) -> list[str]:
        """Return the payloads of the para's messages that wait or were set aside."""
        return [message["msg"] for message in self.of_stage(para, "waiting", "aside")]

    # -- what changes it ------------------------------------------------------------------------------------------

    def enact(self, para: int, payload: str, heap_size: int) -> bool:
        """Append a message to the last page, or to a new one. Return False if no page could hold it."""
        if size_of(payload) > heap_size - OVERHEAD:
            return False
        messages = self.messages.setdefault(para, [])
        end = self.ends.get(para, 0)
        last_page = [message for message in messages if message["page"] == end - 1]
        used = sum(size_of(message["msg"]) + OVERHEAD for message in last_page)
        waits = para in self.ring
        if waits and used + size_of(payload) + OVERHEAD <= heap_size:
            messages.append({"page": end - 1, "index": len(last_page), "msg": payload, "stage": "waiting"})
            return True
        messages.append({"page": end, "index": 0, "msg": payload, "stage": "waiting"})
        self.ends[para] = end + 1
        if not waits:
            self.ring.append(para)
        return True

    def serve(self, budget: int, weight_of: Callable[[str], int]) -> list[list[Any]]:
        """Serve each para of the ring once, from the head on; return [[para, payload], ...]."""
        if budget == 0 or not self.ring:
            return []
        handed_over: list[list[Any]] = []
        used = 0
        turns = list(self.ring)
        self.ring = [*turns[1:], turns[0]]
        for para in turns:
            for message in self.of_stage(para, "waiting"):
                weight = weight_of(message["msg"])
                if weight > budget:
                    message["stage"] = "aside"
                    continue
                if used + weight > budget:
                    break
                used += weight
                message["stage"] = "processed"
                handed_over.append([para, message["msg"]])
            self._tidy(para)
        return handed_over

    def service(self, request: Json, weight_of: Callable[[str], int]) -> list[Any]:
        """Hand over a message that was set aside; return [para, payload]."""
        para = request["para_id"]
        messages = self.messages.get(para, [])
        page = [message for message in messages if message["page"] == request["page"]]
        if not page:
            raise Refused("NoPage")
        found = [message for message in page if message["index"] == request["index"]]
        if not found:
            raise Refused("NoMessage")
        (message,) = found
        if message["stage"] == "waiting":
            raise Refused("Queued")
        if message["stage"] == "processed":
            raise Refused("AlreadyProcessed")
        if weight_of(message["msg"]) > request["weight_limit"]:
            raise Refused("InsufficientWeight")
        message["stage"] = "processed"
        self._tidy(para)
        return [para, message["msg"]]

    def drop(self, para: int) -> None:
        """Remove everything of an offboarded para (PR-09)."""
        self.messages.pop(para, None)
        self.ends.pop(para, None)
        self.ring = [other for other in self.ring if other != para]

    def sweep(self, para: int) -> None:
        """Pass over all that waits of a para that goes; on the chain its book stays (PR-09)."""
        for message in self.of_stage(para, "waiting"):
            message["stage"] = "aside"
        self.ring = [other for other in self.ring if other != para]

    def _tidy(self, para: int) -> None:
        """Remove pages without unprocessed messages, and the para from the ring if nothing waits."""
        left = {message["page"] for message in self.of_stage(para, "waiting", "aside")}
        self.messages[para] = [message for message in self.messages[para] if message["page"] in left]
        if not self.of_stage(para, "waiting"):
            self.ring = [other for other in self.ring if other != para]

    # -- state keys -----------------------------------------------------------------------------------------------

    def overweight(self) -> dict[str, list[Json]]:
        """Return the messages that were set aside, by para, ascending."""
        aside = {para: self.of_stage(para, "aside") for para in sorted(self.messages)}
        return {
            str(para): [{key: message[key] for key in ("page", "index", "msg")} for message in messages]
            for para, messages in aside.items()
            if messages
        }


def change_session(router: NaiveRouter, change: Mapping[str, Any]) -> None:
    """Offboard and onboard, then age, expire and open requests, then close channels."""
    before = router.config
    router.config = {**before, **(change.get("new_config") or {})}
    leaving = sorted({*router.outgoing, *(change.get("outgoing") or [])})
    router.outgoing = []
    if router.has("clean_open_channel_requests"):
        _clean_requests(router, leaving)
    for para in leaving:
        router.kinds.pop(para, None)
    for newcomer in change.get("onboarding") or []:
        router.onboard(newcomer)
    for para in leaving:
        _clean_up(router, para)
    for pair in sorted(router.requests):
        _resolve_request(router, pair, before)
    close_closing(router)


def _clean_requests(router: NaiveRouter, leaving: Collection[int]) -> None:
    """Remove the requests of outgoing paras; what the party that stays has left is returned (PR-03 to PR-05)."""
    for sender, recipient in sorted(router.requests):
        if sender not in leaving and recipient not in leaving:
            continue
        request = router.requests.pop((sender, recipient))
        if not router.has("as_the_chain"):  # there the place of a sender that stays is lost (PR-03)
            router.count_one_request_less(sender)
        if request["confirmed"]:
            router.count_one_acceptance_less(recipient)
        if sender not in leaving:
            router.unreserve(sender, request["sender_deposit"])
        if request["confirmed"] and recipient not in leaving:
            router.unreserve(recipient, request["recipient_deposit"])


def _clean_up(router: NaiveRouter, para: int) -> None:
    """Remove an offboarded para's storage (1.8, I-08). Requests that it still has stay and end by their own rules."""
    remove_channels_of(router, para, "offboarded")
    lost, taken = [], router.dmq_taken.pop(para, 0)
    if queue := router.dmq.get(para):
        lost.append(message_range(None, taken, [message["msg"] for message in queue]))
    if router.queue is None or not router.has("as_the_chain"):  # else its messages stay, and may still be serviced
        upward = router.ump.get(para, []) if router.queue is None else router.queue.unprocessed(para)
        lost += [message_range(para, 0, upward)] if upward else []
    if lost or para in router.dmq_heads:
        router.dropped.append((para, para, "offboarded", lost))
    per_para: list[dict[int, Any]] = [router.dmq, router.dmq_heads, router.ump]
    per_para += [router.open_request_count, router.accepted_request_count]
    if not router.has("as_the_chain"):
        per_para += [router.watermarks, router.digests]
    for table in per_para:
        table.pop(para, None)
    if router.queue is not None and router.has("as_the_chain"):
        router.queue.sweep(para)
    elif router.queue is not None:
        router.queue.drop(para)
    if router.next_dispatch_round_start_with == para:
        router.next_dispatch_round_start_with = None


def remove_channels_of(router: NaiveRouter, para: int, reason: str) -> None:
    """Close every channel from and to a para."""
    for pair in sorted(router.channels):
        if para in pair:
            _remove_channel(router, pair, reason)


def _resolve_request(router: NaiveRouter, pair: Channel, config: Mapping[str, int]) -> None:
    sender, _ = pair
    request = router.requests[pair]
    if request["confirmed"]:
        _open(router, pair)
        return
    if router.has("no_ttl"):
        return
    request["age"] += 1
    if request["age"] < config["hrmp_open_request_ttl"]:
        return
    router.unreserve(sender, request["sender_deposit"])
    del router.requests[pair]
    router.count_one_request_less(sender)


def _open(router: NaiveRouter, pair: Channel) -> None:
    """Make a channel of a confirmed request, if both parties are valid; else deposits are returned (I-07), but not on the chain."""
    sender, recipient = pair
    request = router.requests.pop(pair)
    if router.is_valid(sender) and router.is_valid(recipient):
        kept = {key: value for key, value in request.items() if key not in ("confirmed", "age")}
        router.channels[pair] = {**kept, "mqc_head": ZERO_HASH, "messages": [], "taken": 0}
    elif not router.has("as_the_chain"):
        router.unreserve(sender, request["sender_deposit"])
        router.unreserve(recipient, request["recipient_deposit"])
    router.count_one_request_less(sender)
    router.count_one_acceptance_less(recipient)


def open_confirmed(router: NaiveRouter) -> None:
    """Settle the requests that are confirmed, as the session change would (chain_2026 3.16)."""
    for pair in sorted(router.requests):
        if router.requests[pair]["confirmed"]:
            _open(router, pair)


def close_closing(router: NaiveRouter) -> None:
    """Close what is to be closed."""
    for pair in router.closing:
        _remove_channel(router, pair, "requested")
    router.closing = []


def _remove_channel(router: NaiveRouter, pair: Channel, reason: str) -> None:
    channel = router.channels.pop(pair, None)
    if channel is not None:
        waiting = [message["data"] for message in channel["messages"]]
        if waiting:
            router.dropped.append((*pair, reason, [message_range(pair[0], channel["taken"], waiting)]))
        router.unreserve(pair[0], channel["sender_deposit"])
        router.unreserve(pair[1], channel["recipient_deposit"])


def apply_request(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Apply a request; raise `Refused` for one whose features do not hold before anything else is looked at (router_profiles 1)."""
    kind = request["kind"]
    if kind in REQUESTS and not any(router.has(feature) for feature in REQUESTS[kind]):
        raise Refused("RequestNotInForce", request=kind)
    if kind not in ENTRY_POINTS:
        raise ValueError(f"unknown kind of request: {kind!r}")
    ENTRY_POINTS[kind](router, request)


# -- router.txt -------------------------------------------------------------------------------------------------------


def init_open_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Request a channel (order of router.txt, I-02, I-14)."""
    origin, recipient = request["origin"], request["recipient"]
    places, size = request["max_places"], request["max_message_size"]
    deposit = router.deposits((origin, recipient))[0]
    channels = len(router.egress(origin)) + router.open_request_count.get(origin, 0)
    broken = {
        "ToSelf": origin == recipient,
        "ZeroCapacity": places == 0,
        "CapacityExceedsLimit": places > router.config["hrmp_channel_max_places"],
        "ZeroMessageSize": size == 0,
        "MessageSizeExceedsLimit": size > router.config["hrmp_channel_max_message_size"],
        "InvalidRecipient": not router.is_valid(recipient),
        "AlreadyExists": (origin, recipient) in router.channels,
        "AlreadyRequested": (origin, recipient) in router.requests,
        "LimitExceeded": channels >= router.channel_limit(origin, "outbound"),
    }
    order = list(broken)
    if router.has("as_the_chain"):  # PR-12
        order = [order[0], order[5], *order[1:5], order[7], order[6], order[8]]
    for error in order:
        if broken[error]:
            raise Refused(f"OpenHrmpChannel{error}")
    if not router.can_reserve(origin, deposit):
        raise Refused("InsufficientBalance")
    router.reserve(origin, deposit)
    router.open_request_count[origin] = router.open_request_count.get(origin, 0) + 1
    router.requests[(origin, recipient)] = {
        "confirmed": False,
        "age": 0,
        "sender_deposit": deposit,
        "recipient_deposit": 0,
        "limit_used_places": places,
        "limit_used_bytes": router.config["hrmp_channel_max_size"],
        "limit_message_size": size,
    }
    router.notify(recipient, open_notification(origin, size, places))


def accept_open_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Confirm a request; it remembers what the recipient leaves (PR-05)."""
    origin, sender = request["origin"], request["sender"]
    opening = router.requests.get((sender, origin))
    if opening is None:
        raise Refused("AcceptHrmpChannelDoesntExist")
    if opening["confirmed"]:
        raise Refused("AcceptHrmpChannelAlreadyConfirmed")
    channels = len(router.ingress(origin)) + router.accepted_request_count.get(origin, 0)
    if channels >= router.channel_limit(origin, "inbound"):
        raise Refused("AcceptHrmpChannelLimitExceeded")
    deposit = router.deposits((sender, origin))[1]
    if not router.can_reserve(origin, deposit):
        raise Refused("InsufficientBalance")
    router.reserve(origin, deposit)
    opening["confirmed"] = True
    opening["recipient_deposit"] = deposit
    router.accepted_request_count[origin] = router.accepted_request_count.get(origin, 0) + 1
    router.notify(sender, accepted_notification(origin))


def close_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Note that a channel is to be closed."""
    origin, channel = request["origin"], _named_channel(request)
    if origin not in channel:
        raise Refused("CloseHrmpChannelUnauthorized")
    if channel not in router.channels:
        raise Refused("CloseHrmpChannelDoesntExist")
    if channel in router.closing:
        raise Refused("CloseHrmpChannelAlreadyUnderway")
    router.closing.append(channel)
    other = channel[1] if origin == channel[0] else channel[0]
    router.notify(other, closing_notification(origin, *channel))


def schedule_para_cleanup(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Note that a para is to be offboarded; under message_queue not while it has unprocessed messages (3.9, PR-15).

    On the chain it is refused a second time, and does nothing for a para that it does not know (chain_2026 3.18).
    """
    para = request["para_id"]
    if router.has("as_the_chain"):
        if para in router.outgoing:
            raise Refused("CannotOffboard")
        if para not in router.kinds:
            return
    if router.has("message_queue") and router.upward_waiting(para):
        raise Refused("CannotOffboard")
    router.outgoing = sorted({*router.outgoing, para})


# -- later kinds ------------------------------------------------------------------------------------------------------


def cancel_open_request(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Take back a request that is not confirmed (3.4)."""
    channel = _named_channel(request)
    if request["origin"] not in channel:
        raise Refused("CancelHrmpOpenChannelUnauthorized")
    if channel not in router.requests:
        raise Refused("OpenHrmpChannelDoesntExist")
    _cancel(router, channel)


def _cancel(router: NaiveRouter, channel: Channel) -> None:
    if router.requests[channel]["confirmed"]:
        raise Refused("OpenHrmpChannelAlreadyConfirmed")
    opening = router.requests.pop(channel)
    router.count_one_request_less(channel[0])
    router.unreserve(channel[0], opening["sender_deposit"])


def force_open_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Request and accept in one; without the plain form's restriction a request that exists is cancelled first (3.6)."""
    sender, recipient = request["sender"], request["recipient"]
    if router.has("force_open_channel") and (sender, recipient) in router.requests:
        _cancel(router, (sender, recipient))
    _init_and_accept(router, sender, recipient, request["max_places"], request["max_message_size"])


def establish_system_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Request and accept a channel between two system paras, with the limits of the configuration (3.12)."""
    sender, recipient = request["sender"], request["recipient"]
    if not (is_system(sender) and is_system(recipient)):
        raise Refused("ChannelCreationNotAuthorized")
    places, size = router.limit("hrmp_channel_max_places"), router.limit("hrmp_channel_max_message_size")
    _init_and_accept(router, sender, recipient, places, size)


def establish_channel_with_system(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Request and accept channels to a system para and back (3.12)."""
    origin, target = request["origin"], request["target"]
    if not is_system(target):
        raise Refused("ChannelCreationNotAuthorized")
    places = router.limit("hrmp_system_channel_max_places")
    size = router.limit("hrmp_system_channel_max_message_size")
    _init_and_accept(router, origin, target, places, size)
    _init_and_accept(router, target, origin, places, size)


def poke_channel_deposits(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Bring a channel's deposits to what the configuration asks now, nothing for system paras in any case (3.12)."""
    pair = request["sender"], request["recipient"]
    channel = router.channels.get(pair)
    if channel is None:
        raise Refused("OpenHrmpChannelDoesntExist")
    wanted = router.config["hrmp_sender_deposit"], router.config["hrmp_recipient_deposit"]
    if is_system(pair[0]) or is_system(pair[1]):
        wanted = 0, 0
    for para, key, deposit in zip(pair, ("sender_deposit", "recipient_deposit"), wanted, strict=True):
        missing = deposit - channel[key]
        if not router.can_reserve(para, missing):
            raise Refused("InsufficientBalance")
        if missing > 0:
            router.reserve(para, missing)
        else:
            router.unreserve(para, -missing)
        channel[key] = deposit


def service_overweight(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Hand over a message that was set aside, ahead of the round (3.9)."""
    assert router.queue is not None
    router.serviced.append(router.queue.service(dict(request), router.upward_weight))


def force_process_open(router: NaiveRouter, _request: Mapping[str, Any]) -> None:
    """Open what is confirmed, now (chain_2026 3.16)."""
    open_confirmed(router)


def force_process_close(router: NaiveRouter, _request: Mapping[str, Any]) -> None:
    """Close what is to be closed, now (chain_2026 3.16)."""
    close_closing(router)


def force_clean(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Close all channels of a para; the chain forgets its counts of requests, too (chain_2026 3.16, PR-17)."""
    remove_channels_of(router, request["para_id"], "cleaned")
    if router.has("as_the_chain"):
        router.open_request_count.pop(request["para_id"], None)
        router.accepted_request_count.pop(request["para_id"], None)


def _init_and_accept(router: NaiveRouter, sender: int, recipient: int, places: int, size: int) -> None:
    sizes = {"max_places": places, "max_message_size": size}
    init_open_channel(router, {"origin": sender, "recipient": recipient, **sizes})
    accept_open_channel(router, {"origin": recipient, "sender": sender})


def _named_channel(request: Mapping[str, Any]) -> Channel:
    sender, recipient = request["channel"]
    return sender, recipient


EntryPoint = Callable[["NaiveRouter", Mapping[str, Any]], None]

ENTRY_POINTS: Final[dict[str, EntryPoint]] = {
    "init_open_channel": init_open_channel,
    "accept_open_channel": accept_open_channel,
    "close_channel": close_channel,
    "schedule_para_cleanup": schedule_para_cleanup,
    "cancel_open_request": cancel_open_request,
    "force_open_channel": force_open_channel,
    "establish_system_channel": establish_system_channel,
    "establish_channel_with_system": establish_channel_with_system,
    "poke_channel_deposits": poke_channel_deposits,
    "service_overweight": service_overweight,
    "force_process_open": force_process_open,
    "force_process_close": force_process_close,
    "force_clean": force_clean,
}


def saved(router: NaiveRouter) -> Json:
    """Return copies of all that a request may change before a later part of it is refused."""
    return {
        "free": dict(router.free),
        "reserved": dict(router.reserved),
        "channels": {pair: dict(channel) for pair, channel in router.channels.items()},
        "requests": {pair: dict(request) for pair, request in router.requests.items()},
        "open_request_count": dict(router.open_request_count),
        "accepted_request_count": dict(router.accepted_request_count),
        "closing": list(router.closing),
        "dmq": {para: list(queue) for para, queue in router.dmq.items()},
        "dmq_heads": dict(router.dmq_heads),
    }


CHANNEL_LIMITS = ("limit_used_places", "limit_used_bytes", "limit_message_size")


def channel_name(channel: tuple[int, int]) -> str:
    """Return the name of a channel in a trace, `sender->recipient`."""
    return f"{channel[0]}->{channel[1]}"


def channel_of(name: str) -> tuple[int, int]:
    """Parse a channel's name into (sender, recipient)."""
    sender, recipient = name.split("->")
    return int(sender), int(recipient)


def router_state(router: NaiveRouter) -> dict[str, Any]:
    """Return all state keys in ascending order, without empty rows and zero counts."""
    channels = sorted(router.channels)
    paras_in = sorted({recipient for _, recipient in channels})
    paras_out = sorted({sender for sender, _ in channels})
    free = {para: 0 if router.unlimited_balances else amount for para, amount in router.free.items()}
    accounts = sorted(
        para
        for para in {*router.free, *router.reserved}
        if para in router.kinds or free.get(para) or router.reserved.get(para)
    )
    return {
        "channels": {channel_name(pair): _channel(router, pair) for pair in channels},
        "channel_set": [channel_name(pair) for pair in channels],
        "open_requests": {channel_name(pair): _request(router, pair) for pair in sorted(router.requests)},
        "open_request_set": [channel_name(pair) for pair in sorted(router.requests)],
        "close_request_set": [channel_name(pair) for pair in sorted(router.closing)],
        "open_request_count": _rows({para: count for para, count in router.open_request_count.items() if count}),
        "accepted_request_count": _rows({para: n for para, n in router.accepted_request_count.items() if n}),
        "ingress": _rows({para: router.ingress(para) for para in paras_in}),
        "egress": _rows({para: router.egress(para) for para in paras_out}),
        "contents": {
            channel_name(pair): [dict(message) for message in router.channels[pair]["messages"]]
            for pair in channels
            if router.channels[pair]["messages"]
        },
        "digests": _rows({para: _digest(entries) for para, entries in router.digests.items() if entries}),
        "watermarks": _rows(router.watermarks),
        "dmq": _rows({para: [dict(message) for message in queue] for para, queue in router.dmq.items() if queue}),
        "dmq_heads": _rows(router.dmq_heads),
        "mqc_heads": _rows(
            {para: [[s, router.channels[(s, para)]["mqc_head"]] for s in router.ingress(para)] for para in paras_in}
        ),
        **_upward(router),
        "balances": _rows(
            {para: {"free": free.get(para, 0), "reserved": router.reserved.get(para, 0)} for para in accounts}
        ),
        "valid_paras": sorted(router.kinds),
        "outgoing_paras": list(router.outgoing),
        "ready_ring": None if router.queue is None else list(router.queue.ring),
        "ump_overweight": None if router.queue is None else router.queue.overweight(),
    }


def _upward(router: NaiveRouter) -> dict[str, Any]:
    """Return the keys of upward messages. Those set aside have a size, but stand in no queue."""
    queue = router.queue
    paras = router.ump if queue is None else queue.messages
    waiting = router.ump if queue is None else {para: queue.waiting(para) for para in paras}
    unprocessed = {para: router.upward_waiting(para) for para in paras}
    first = router.next_dispatch_round_start_with
    if queue is not None:
        first = queue.ring[0] if queue.ring else None
    return {
        "ump_queues": _rows({para: list(payloads) for para, payloads in waiting.items() if payloads}),
        "ump_queue_size": _rows(
            {para: [len(every), sum(len(m) // 2 for m in every)] for para, every in unprocessed.items() if every}
        ),
        "needs_dispatch": router.needs_dispatch(),
        "next_dispatch_round_start_with": first,
    }


def load_state(router: NaiveRouter, state: Mapping[str, Any]) -> None:
    """Load a state without the message queue into an empty Router. Every para of `valid_paras` becomes a parachain.

    A state names no recipient's deposit of a confirmed request: it is taken to be the configuration's.
    """
    assert state.get("ready_ring") is None, "the keys of a state do not say which pages the messages are in"
    for name, channel in state.get("channels", {}).items():
        kept = {key: value for key, value in channel.items() if key not in ("used_places", "used_bytes")}
        messages = [dict(message) for message in state.get("contents", {}).get(name, [])]
        router.channels[channel_of(name)] = {**kept, "messages": messages, "taken": -len(messages)}
    for name, request in state.get("open_requests", {}).items():
        left = router.config["hrmp_recipient_deposit"] if request["confirmed"] else 0
        router.requests[channel_of(name)] = {**request, "recipient_deposit": left}
    router.closing = [channel_of(name) for name in state.get("close_request_set", [])]
    router.open_request_count = _ids(state, "open_request_count")
    router.accepted_request_count = _ids(state, "accepted_request_count")
    router.watermarks = _ids(state, "watermarks")
    router.dmq_heads = _ids(state, "dmq_heads")
    router.dmq = {para: [dict(message) for message in queue] for para, queue in _ids(state, "dmq").items()}
    router.dmq_taken = {para: -len(queue) for para, queue in router.dmq.items()}
    router.ump = {para: list(queue) for para, queue in _ids(state, "ump_queues").items()}
    router.digests = {
        para: [(block, sender) for block, senders in entries for sender in senders]
        for para, entries in _ids(state, "digests").items()
    }
    router.next_dispatch_round_start_with = state.get("next_dispatch_round_start_with")
    for para, balance in _ids(state, "balances").items():
        router.free[para], router.reserved[para] = balance["free"], balance["reserved"]
    router.kinds = dict.fromkeys(state.get("valid_paras", []), "parachain")
    router.outgoing = sorted(state.get("outgoing_paras", []))


def _request(router: NaiveRouter, pair: Channel) -> dict[str, Any]:
    return {key: value for key, value in router.requests[pair].items() if key != "recipient_deposit"}


def _channel(router: NaiveRouter, pair: Channel) -> dict[str, Any]:
    channel = router.channels[pair]
    return {
        "sender_deposit": channel["sender_deposit"],
        "recipient_deposit": channel["recipient_deposit"],
        **{key: channel[key] for key in CHANNEL_LIMITS},
        "used_places": router.used_places(pair),
        "used_bytes": router.used_bytes(pair),
        "mqc_head": channel["mqc_head"],
    }


def _digest(entries: list[tuple[int, int]]) -> list[list[Any]]:
    grouped: dict[int, list[int]] = {}
    for block, sender in entries:
        grouped.setdefault(block, []).append(sender)
    return [[block, senders] for block, senders in grouped.items()]


def _rows(table: Mapping[int, Any]) -> dict[str, Any]:
    return {str(para): table[para] for para in sorted(table)}


def _ids(state: Mapping[str, Any], key: str) -> dict[int, Any]:
    return {int(para): value for para, value in state.get(key, {}).items()}


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
        self.dmq_taken: dict[int, int] = {}  # messages that have left a queue, up to 0 for those before the first block
        self.dropped: list[tuple[int, int, str, list[Json]]] = []  # in this block: sender, recipient, reason, ranges
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
        self.dropped = []
        if self.has("message_queue") and self.queue is None:
            self._begin_message_queue()
        results = []
        for entry in included:
            found = self._take_pending(entry)
            if found is None:
                results.append(failed("Inclusion/CandidateNotPending", para_id=entry["para_id"]))
            else:
                results.append(accepted(self._enact(found["candidate"])))
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
            self._enact_upward(para, self.ump[para])
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
            return accepted(self._enact(candidate))
        self.pending.append({"backed_at": self.now, "candidate": candidate})
        return accepted()

    def _enact(self, candidate: Json) -> list[Json]:
        """Enact a candidate, and return the ranges of messages that its para has received by it: downward, then by sender."""
        para, watermark = candidate["para_id"], candidate["hrmp_watermark"]
        processed = candidate["processed_downward_messages"]
        downward = [message["msg"] for message in self.dmq.get(para, [])[:processed]]
        received = [message_range(None, self.dmq_taken.get(para, 0), downward)] if downward else []
        self.dmq_taken[para] = self.dmq_taken.get(para, 0) + len(downward)
        self.dmq[para] = self.dmq.get(para, [])[processed:]
        if self.queue is None:
            self.ump[para] = self.ump.get(para, []) + messages_of(self, candidate)
        else:
            self._enact_upward(para, messages_of(self, candidate))
        # A waiting message's block is always in its recipient's digest, so the digest need not be consulted.
        for (sender, recipient), channel in sorted(self.channels.items(), key=lambda item: item[0]):
            if recipient == para and channel["messages"]:
                passed = [m["data"] for m in channel["messages"] if m["sent_at"] <= watermark]
                received += [message_range(sender, channel["taken"], passed)] if passed else []
                channel["taken"] += len(passed)
                channel["messages"] = channel["messages"][len(passed) :]
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
        return received

    def _enact_upward(self, para: int, payloads: Sequence[str]) -> None:
        assert self.queue is not None
        heap_size = self.limit("message_queue_heap_size")
        oversized = []
        for position, payload in enumerate(payloads):
            if not self.queue.enact(para, payload, heap_size):
                oversized.append(message_range(para, position, [payload]))
        if oversized:
            self.dropped.append((para, para, "oversized", oversized))

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


_EMPTY = {"upward_messages": [], "processed_downward_messages": 0, "horizontal_messages": []}
NEEDS = ("delayed_enactment", *FEATURES)


def play(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run a Router scenario and return its results in the shape of `validator replay --json`. `expect` is not read."""
    unknown = [need for need in scenario.get("needs", []) if need not in NEEDS]
    if unknown or scenario.get("protocol", "router") != "router":
        return {"id": scenario["id"], "skipped": f"not a part of the naive model: {unknown or scenario['protocol']}"}
    router = NaiveRouter(
        scenario["config"],
        scenario.get("genesis_paras", []),
        ump_weights=scenario.get("ump_weights", {}),
        ump_default_weight=scenario.get("ump_default_weight", 1),
        ump_failing_messages=scenario.get("ump_failing_messages", []),
        rules=_rules(scenario),
    )
    steps = scenario["steps"]
    delayed: list[tuple[int, dict[str, Any]]] = []  # (block of enactment, entry of `included`)
    played = []
    for position, step in enumerate(steps):
        block = step["block"]
        if position == 0 or steps[position - 1]["block"] != block:
            _enact_until(router, delayed, block)
            router.begin_block(block)
        requests = [router.request(request) for request in step.get("requests", [])]
        downward = [router.downward(message) for message in step.get("downward", [])]
        candidates: list[Json] = []
        for candidate in step.get("candidates", []):
            enact_at = candidate.get("enact_at_block")
            result = router.candidate({**_EMPTY, **candidate}, "immediate" if enact_at is None else "on-inclusion")
            if enact_at is not None and result["ok"]:
                delayed.append((enact_at, {"para_id": candidate["para_id"], "backed_at": block}))
            candidates.append({key: value for key, value in result.items() if key != "received"})
        last_of_block = position + 1 == len(steps) or steps[position + 1]["block"] != block
        dispatched = router.dispatch_round() if last_of_block else None
        if step.get("session_change") is not None:
            router.session_change(step["session_change"])
        results = {"requests": requests, "downward": downward, "candidates": candidates}
        played.append({"block": block, **results, "dispatched": dispatched, "state": router.state()})
    return {"id": scenario["id"], "steps": played}


def _rules(scenario: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scenario's rules by height; without a list, its features hold from block 0 on."""
    if "rules" in scenario:
        return list(scenario["rules"])
    return [{"from_block": 0, "features": [need for need in scenario.get("needs", []) if need in FEATURES]}]


def _enact_until(router: NaiveRouter, delayed: list[tuple[int, dict[str, Any]]], block: int) -> None:
    due = sorted((item for item in delayed if item[0] <= block), key=lambda item: item[0])
    for item in due:
        delayed.remove(item)
        router.begin_block(item[0], included=[item[1]])
