# SPDX-License-Identifier: Apache-2.0
"""The four acceptance checks of the naive model (router_rules.md 1.3). Each returns the first broken rule, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.simulate import Json, failed, size_of

if TYPE_CHECKING:
    from validator.protocols.router.simulation.model import NaiveRouter


def check_downward(router: NaiveRouter, candidate: Json) -> Json | None:
    """Check that waiting downward messages are processed, and no more than the queue holds."""
    group = "ProcessedDownwardMessages/"
    processed = candidate["processed_downward_messages"]
    length = len(router.dmq.get(candidate["para_id"], []))
    if length > 0 and processed == 0:
        return failed(group + "AdvancementRule")
    if processed > length:
        return failed(group + "Underflow", processed_downward_messages=processed, dmq_length=length)
    return None


def check_upward(router: NaiveRouter, candidate: Json) -> Json | None:
    """Check number and sizes, then the room in the queue: count before bytes (I-18)."""
    group = "UpwardMessages/"
    messages = candidate["upward_messages"]
    permitted = router.config["max_upward_message_num_per_candidate"]
    if len(messages) > permitted:
        return failed(group + "MoreMessagesThanPermitted", sent=len(messages), permitted=permitted)
    max_size = router.config["max_upward_message_size"]
    for idx, message in enumerate(messages):
        if size_of(message) > max_size:
            return failed(group + "MessageSize", idx=idx, msg_size=size_of(message), max_size=max_size)
    after = router.ump.get(candidate["para_id"], []) + messages
    limit = router.config["max_upward_queue_count"]
    if len(after) > limit:
        return failed(group + "CapacityExceeded", count=len(after), limit=limit)
    limit = router.config["max_upward_queue_size"]
    total_size = sum(size_of(message) for message in after)
    if total_size > limit:
        return failed(group + "TotalSizeExceeded", total_size=total_size, limit=limit)
    return None


def check_watermark(router: NaiveRouter, candidate: Json) -> Json | None:
    """Check that the watermark advances, to the relay parent or to a block with messages (I-12)."""
    group = "HrmpWatermark/"
    para, new = candidate["para_id"], candidate["hrmp_watermark"]
    relay_parent = candidate.get("relay_parent_number")
    if relay_parent is None:
        relay_parent = router.now - 1
    if para in router.watermarks and new <= router.watermarks[para]:
        return failed(group + "AdvancementRule", new_watermark=new, last_watermark=router.watermarks[para])
    if new > relay_parent:
        return failed(group + "AheadRelayParent", new_watermark=new, relay_chain_parent_number=relay_parent)
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
CHECKS_IN_ORDER = (check_downward, check_upward, check_watermark, check_outbound)
