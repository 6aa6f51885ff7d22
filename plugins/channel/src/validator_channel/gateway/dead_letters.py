# SPDX-License-Identifier: Apache-2.0
"""Dead letters for peers: whose record it was, and what its peer gets. Source: channel_rules 5.2.

The record itself decides, by its topic, lane and para as the registry judges them when a peer submits it. Nobody gets the bytes: two peers
may speak for one para, and producers without a peer write to the same topics. A record that cannot be decoded is not one of a peer, since
the gateway encodes what peers submit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from validator_channel.application import SUBMIT_TOPICS
from validator_channel.gateway.policy import Grant, PeerPolicy, para_of

Key: TypeAlias = tuple[str, int | None, str]
"""A lane, a para of it, and a topic on which records about it are submitted.

None for the para stands for every one. Requests that no para makes have `Grant.ROOT_REQUESTS` as their topic.
"""

SHOWN: Final = ("lane", "topic", "partition", "offset", "block", "index", "reason", "detail")
"""The fields of a dead letter that a peer gets, besides `para_id` and `record_hash`."""

Decode = Callable[[str, bytes], dict[str, Any]]
"""Returns a record of a topic in JSON form. Raises ``ValueError``."""


def record_hash(topic: str, record: Mapping[str, Any], value: bytes) -> str:
    """Return by which hash a peer recognises a record: its `candidate_hash`, otherwise BLAKE2b-256 of its bytes on Kafka."""
    given = record.get("candidate_hash") if topic == "candidates" else None
    return given if isinstance(given, str) else blake2b(value, digest_size=32).hexdigest()


def read_dead_letter(letter: Mapping[str, Any], decode: Decode) -> tuple[tuple[Key, ...], dict[str, Any]]:
    """Return the keys under which feeds look for a dead letter, none if it is of no peer, and what a peer gets of it."""
    topic = _without_prefix(str(letter["topic"]))
    value = bytes.fromhex(letter["raw"])
    shown = {name: letter.get(name) for name in SHOWN} | {"topic": topic}
    try:
        record = decode(topic, value) if topic in SUBMIT_TOPICS else None
    except ValueError:
        record = None
    if record is None or not isinstance(record.get("lane"), str):
        return (), shown
    shown |= {"para_id": para_of(topic, record), "record_hash": record_hash(topic, record, value)}
    return _keys(topic, record["lane"], shown["para_id"]), shown


def dead_letter_keys(policy: PeerPolicy) -> frozenset[Key]:
    """Return the keys of a peer's feed: what it may submit, for the lanes and paras that it speaks for."""
    keys: set[Key] = set()
    for lane, paras in policy.lanes.items():
        for topic in policy.submit:
            every = paras is None or topic == "blocks"
            keys.update((lane, para, topic) for para in ((None,) if every else paras or ()))
        if "channel-requests" in policy.submit and Grant.ROOT_REQUESTS in policy.grants:
            keys.add((lane, None, Grant.ROOT_REQUESTS))
    return frozenset(keys)


def _without_prefix(topic: str) -> str:
    """Return a topic of this deployment without its prefix, which a transport does not know; no input's name ends with another one's."""
    return next((name for name in SUBMIT_TOPICS if topic.endswith(name)), topic)


def _keys(topic: str, lane: str, para: int | None) -> tuple[Key, ...]:
    if para is not None:
        return (lane, para, topic), (lane, None, topic)
    return ((lane, None, Grant.ROOT_REQUESTS if topic == "channel-requests" else topic),)
