# SPDX-License-Identifier: Apache-2.0
"""The session change of the naive model: router_rules 1.7 and 1.8, router_profiles 3.3 and 3.5, chain_2026 3.16 and 3.18."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from validator.protocols.router.simulation.hashing import ZERO_HASH

if TYPE_CHECKING:
    from validator.protocols.router.simulation.model import Channel, NaiveRouter


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
    remove_channels_of(router, para)
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


def remove_channels_of(router: NaiveRouter, para: int) -> None:
    """Close every channel from and to a para."""
    for pair in sorted(router.channels):
        if para in pair:
            _remove_channel(router, pair)


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
        router.channels[pair] = {**kept, "mqc_head": ZERO_HASH, "messages": []}
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
        _remove_channel(router, pair)
    router.closing = []


def _remove_channel(router: NaiveRouter, pair: Channel) -> None:
    channel = router.channels.pop(pair, None)
    if channel is not None:
        router.unreserve(pair[0], channel["sender_deposit"])
        router.unreserve(pair[1], channel["recipient_deposit"])
