# SPDX-License-Identifier: Apache-2.0
"""The acceptance checks of the naive model (router_rules.md 1.3, chain_2026 3.14). Each returns the first broken rule, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.simulate import Json, failed, size_of

if TYPE_CHECKING:
    from validator.protocols.router.simulation.model import NaiveRouter


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
