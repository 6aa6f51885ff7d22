# SPDX-License-Identifier: Apache-2.0
"""What the topic `journeys` must hold, from the records of a lane alone: it shares no code with the job.

A number is used again only after everything in its queue has ended. So among messages with one number in one queue the first end belongs to
the first queueing, the second end to the second one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import zip_longest
from typing import Any, NamedTuple

Json = Mapping[str, Any]


class Message(NamedTuple):
    """A message of a numbered queue, with the block and MQC head of its queueing, and its end."""

    sender: int | None
    recipient: int
    number: int
    queued: tuple[int, str] | None
    ended: tuple[int, str] | None


def numbered(verdicts: Iterable[Json], dispatches: Iterable[Json], events: Iterable[Json]) -> Counter[Message]:
    """Return the horizontal and downward messages of a chain whose channels each have a queue. Records are in their JSON form."""
    queued: dict[tuple[int | None, int, int], list[tuple[int, str]]] = defaultdict(list)
    ended: dict[tuple[int | None, int, int], list[tuple[int, str]]] = defaultdict(list)

    def leave(recipient: int, ranges: Iterable[Json], block: int, fate: str) -> None:
        for each in ranges:
            for number in range(each["first"], each["last"] + 1):
                ended[each["sender"], recipient, number].append((block, fate))

    for verdict in verdicts:
        is_candidate = verdict["kind"] in {"candidate", "inclusion"}
        for ref in verdict["messages"]:
            sender = verdict["para_id"] if is_candidate else None
            queued[sender, ref["recipient"], ref["sequence_number"]].append((verdict["block"], bare(ref["mqc_head"])))
        leave(verdict["para_id"], verdict.get("received", ()), verdict["block"], "received")
    for dispatch in dispatches:
        for ref in dispatch.get("messages", ()):
            queued[None, ref["recipient"], ref["sequence_number"]].append((dispatch["block"], bare(ref["mqc_head"])))
    for event in events:
        is_para = event["sender"] == event["recipient"]
        dropped = [each for each in event.get("dropped", ()) if not is_para or each["sender"] is None]
        leave(event["recipient"], dropped, event["block"], f"dropped {event['reason']}")
    return Counter(
        Message(*key, *pair)
        for key in queued.keys() | ended.keys()
        for pair in zip_longest(sorted(queued[key]), sorted(ended[key]))
    )


def dispatched(dispatches: Iterable[Json]) -> Counter[tuple[Any, ...]]:
    """Return the upward messages that were dispatched: para, payload hash, block, index, outcome."""
    return Counter(
        (each["para_id"], hash_of(each["payload"]), each["block"], each["index"], each["outcome"])
        for each in dispatches
    )


def numbered_journeys(journeys: Iterable[Json]) -> Counter[Message]:
    """Return the same of the newest record of each message in `journeys`."""
    found: Counter[Message] = Counter()
    for each in journeys:
        if each["kind"] == "upward":
            continue
        queued = [leg for leg in each["legs"] if leg["step"] == "queued"]
        ended = [leg for leg in each["legs"] if leg["step"] != "queued"]
        ends = [
            (leg["block"], leg["step"] if leg["detail"] is None else f"{leg['step']} {leg['detail']}") for leg in ended
        ]
        assert (each["status"] == "waiting") == (not ended)
        found[
            Message(
                each["sender"],
                each["recipient"],
                each["number"],
                (queued[0]["block"], bare(each["mqc_head"])) if queued else None,
                ends[0] if ends else None,
            )
        ] += 1
    return found


def dispatched_journeys(journeys: Iterable[Json]) -> Counter[tuple[Any, ...]]:
    """Return the upward messages that `journeys` says were dispatched."""
    return Counter(
        (each["sender"], bare(each["payload_hash"]), leg["block"], leg["index"], leg["detail"])
        for each in journeys
        if each["kind"] == "upward"
        for leg in each["legs"]
        if leg["step"] == "dispatched"
    )


def newest(records: Iterable[Json]) -> list[Json]:
    """Return the last record of each message."""
    return list({record["id"]: record for record in records}.values())


def hash_of(payload: str) -> str:
    """Return the BLAKE2b-256 hash of hexadecimal bytes."""
    return blake2b(bytes.fromhex(bare(payload)), digest_size=32).hexdigest()


def bare(digits: str) -> str:
    """Return hexadecimal digits without their prefix: decoded records have it, those of `validator watch --json` may."""
    return digits.removeprefix("0x")
