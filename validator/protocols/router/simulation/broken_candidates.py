# SPDX-License-Identifier: Apache-2.0
"""Ways to turn a good candidate into one that breaks a given rule.

Each way reads the model and changes the candidate in place. It returns False if the chain's state does not allow this rule to
be broken. Ways compose: two of them make a candidate that breaks two rules at once, which tests the order of the checks. The
model decides the actual verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from validator.protocols.router.simulation.acceptance import relay_parent_of
from validator.protocols.router.simulation.model import NaiveRouter
from validator.simulate import Draws, Json

Way = Callable[[NaiveRouter, Draws, Json, list[int], int], bool]
"""(model, random, candidate to change, recipients of the para's channels, maximum bytes to spend) -> whether it succeeded."""


def put_message(candidate: Json, recipient: int, data: str, most: int) -> None:
    """Insert a horizontal message in sorted order. Replace one to the same recipient and drop others beyond ``most``."""
    others = [message for message in candidate["horizontal_messages"] if message["recipient"] != recipient]
    kept = [*others[: most - 1], {"recipient": recipient, "data": data}]
    candidate["horizontal_messages"] = sorted(kept, key=lambda message: int(message["recipient"]))


def _put(router: NaiveRouter, candidate: Json, recipient: int, data: str) -> bool:
    most = router.config["hrmp_max_message_num_per_candidate"]
    if most > 0:
        put_message(candidate, recipient, data, most)
    return most > 0


# -- downward, upward -------------------------------------------------------------------------------------------------


def no_downward_processed(router: NaiveRouter, _rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    queue = router.dmq.get(candidate["para_id"])
    if not queue:
        return False
    if router.has("dmp_by_relay_parent") and queue[0]["sent_at"] > relay_parent_of(router, candidate):
        return False
    candidate["processed_downward_messages"] = 0
    return True


def too_many_processed(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    candidate["processed_downward_messages"] = len(router.dmq.get(candidate["para_id"], [])) + rng.choice((1, 1, 2, 9))
    return True


def too_many_upward(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    permitted = router.config["max_upward_message_num_per_candidate"]
    while len(candidate["upward_messages"]) <= permitted:
        candidate["upward_messages"].append(rng.hex(rng.randint(1, 8)))
    return True


def large_upward(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], cost: int) -> bool:
    size = router.config["max_upward_message_size"] + 1
    if size > cost:
        return False
    messages = candidate["upward_messages"]
    messages[-1:] = [rng.hex(size)]
    return True


def full_upward_queue(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    room = router.config["max_upward_queue_count"] - len(router.upward_waiting(candidate["para_id"]))
    if max(room + 1, 0) > router.config["max_upward_message_num_per_candidate"]:
        return False
    while len(candidate["upward_messages"]) <= room:
        candidate["upward_messages"].append(rng.hex(rng.randint(0, 8)))
    return True


def full_upward_bytes(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], cost: int) -> bool:
    queue = router.upward_waiting(candidate["para_id"])
    count = min(
        router.config["max_upward_message_num_per_candidate"], router.config["max_upward_queue_count"] - len(queue)
    )
    missing = router.config["max_upward_queue_size"] + 1 - sum(len(message) // 2 for message in queue)
    largest = router.config["max_upward_message_size"]
    if count <= 0 or missing <= 0 or missing > cost or missing > count * largest:
        return False
    sizes = [missing // count + (number < missing % count) for number in range(count)]
    if missing <= largest:
        sizes = [missing]
    candidate["upward_messages"] = [rng.hex(size) for size in sizes]
    return True


# -- watermark --------------------------------------------------------------------------------------------------------


def standing_watermark(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    last = router.watermarks.get(candidate["para_id"])
    if last is None:
        return False
    new = max(0, last - rng.choice((0, 0, 1, 5)))
    if router.has("relaxed_watermark") and new == relay_parent_of(router, candidate):
        return False
    if router.has("watermark_may_stay") and new == last:
        return False
    candidate["hrmp_watermark"] = new
    return True


def watermark_ahead(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    candidate["hrmp_watermark"] = relay_parent_of(router, candidate) + rng.choice((1, 1, 2, 100))
    return True


def watermark_between(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    para = candidate["para_id"]
    busy = {block for block, _ in router.digests.get(para, [])}
    relay_parent = relay_parent_of(router, candidate)
    start = max(router.watermarks.get(para, -1) + 1, relay_parent - 50)
    quiet = [block for block in range(start, relay_parent) if block not in busy]
    if quiet:
        candidate["hrmp_watermark"] = rng.choice(quiet)
    return bool(quiet)


# -- outbound ---------------------------------------------------------------------------------------------------------


def too_many_outbound(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], _cost: int) -> bool:
    permitted = router.config["hrmp_max_message_num_per_candidate"]
    sent = {message["recipient"] for message in candidate["horizontal_messages"]}
    recipients = [*(para for para in egress if para not in sent), *range(90_000, 90_001 + permitted)]
    missing = permitted + 1 - len(candidate["horizontal_messages"])
    extra = [{"recipient": para, "data": rng.hex(4)} for para in recipients[: max(0, missing)]]
    candidate["horizontal_messages"] = sorted(
        candidate["horizontal_messages"] + extra, key=lambda message: int(message["recipient"])
    )
    return True


def unsorted_outbound(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], _cost: int) -> bool:
    messages = candidate["horizontal_messages"]
    if router.config["hrmp_max_message_num_per_candidate"] < 2 or not egress:
        return False
    if len(messages) < 2:
        first = messages[0]["recipient"] if messages else rng.choice(egress)
        second = rng.choice(egress)  # the same recipient twice is not sorted either
        pair = sorted((first, second))
        messages = [{"recipient": para, "data": rng.hex(rng.randint(1, 40))} for para in pair]
    candidate["horizontal_messages"] = messages[::-1]
    return True


def no_channel(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], _cost: int) -> bool:
    strangers = [para for para in router.kinds if para not in egress]
    recipient = rng.choice(strangers) if strangers and rng.random() < 0.8 else 80_000 + rng.randrange(1000)
    return _put(router, candidate, recipient, rng.hex(rng.randint(1, 100)))


def large_outbound(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], cost: int) -> bool:
    para = candidate["para_id"]
    limits = [(router.channels[(para, recipient)]["limit_message_size"], recipient) for recipient in egress]
    if not limits or min(limits)[0] + 1 > cost:
        return False
    limit, recipient = min(limits)
    return _put(router, candidate, recipient, rng.hex(limit + 1))


def full_channel_bytes(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], cost: int) -> bool:
    para = candidate["para_id"]
    for recipient in egress:
        channel = router.channels[(para, recipient)]
        missing = channel["limit_used_bytes"] + 1 - router.used_bytes((para, recipient))
        if missing <= min(cost, channel["limit_message_size"]):
            return _put(router, candidate, recipient, rng.hex(missing))
    return False


def full_channel_places(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], _cost: int) -> bool:
    para = candidate["para_id"]
    for recipient in egress:
        channel = (para, recipient)
        if router.used_places(channel) >= router.channels[channel]["limit_used_places"]:
            return _put(router, candidate, recipient, rng.hex(rng.randint(0, 2)))
    return False


WAYS: Final[dict[str, Way]] = {
    "ProcessedDownwardMessages/AdvancementRule": no_downward_processed,
    "ProcessedDownwardMessages/Underflow": too_many_processed,
    "UpwardMessages/MoreMessagesThanPermitted": too_many_upward,
    "UpwardMessages/MessageSize": large_upward,
    "UpwardMessages/CapacityExceeded": full_upward_queue,
    "UpwardMessages/TotalSizeExceeded": full_upward_bytes,
    "HrmpWatermark/AdvancementRule": standing_watermark,
    "HrmpWatermark/AheadRelayParent": watermark_ahead,
    "HrmpWatermark/LandsOnBlockWithNoMessages": watermark_between,
    "OutboundHrmp/MoreMessagesThanPermitted": too_many_outbound,
    "OutboundHrmp/NotSorted": unsorted_outbound,
    "OutboundHrmp/NoSuchChannel": no_channel,
    "OutboundHrmp/MaxMessageSizeExceeded": large_outbound,
    "OutboundHrmp/TotalSizeExceeded": full_channel_bytes,
    "OutboundHrmp/CapacityExceeded": full_channel_places,
}
