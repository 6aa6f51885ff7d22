# SPDX-License-Identifier: Apache-2.0
"""Channel requests, and reports of bodies: the relay chain never sees a body: whoever holds one reports its root and size.

Source: xcmp_rules 1.4 "Bodies".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from validator_xcmp import requests as xcmp
from validator_xcmp.records import AcceptOpenChannel, AcceptOpenChannelFrom, InitOpenChannel

from validator.plugin.protocol_api import Effects, Environment
from validator_xcmp_network.errors import (
    BodyDuplicate,
    BodyNotExpected,
    BodyRootMismatch,
    BodySizeMismatch,
    RequestNotInForce,
)
from validator_xcmp_network.records import ChannelRequest, ReportBody
from validator_xcmp_network.state import NetworkState, find_entry

REQUEST_NAMES: Final[Mapping[type[Any], str]] = {
    InitOpenChannel: "init_open_channel",
    AcceptOpenChannel: "accept_open_channel",
    AcceptOpenChannelFrom: "accept_open_channel",
}
"""Requests by the name that a trace gives them; the others close a channel."""


def apply_request(state: NetworkState, env: Environment, request: ChannelRequest) -> Effects:
    """Apply a request or a report. Raises `RequestNotInForce` for a request if the channels are fixed, then its own violations."""
    if isinstance(request, ReportBody):
        report_body(state, request)
        return Effects()
    if not state.is_composed:
        raise RequestNotInForce(request=REQUEST_NAMES.get(type(request), "close_channel"))
    return xcmp.apply_request(state, env, request)


def report_body(state: NetworkState, report: ReportBody) -> None:
    """Note that a message's body is held, until the message is acknowledged.

    Raises `BodyNotExpected` (N-I07), `BodySizeMismatch`, `BodyRootMismatch`, `BodyDuplicate`.
    """
    recipient, sender, sent_at, root, size = report
    entry = find_entry(state, recipient, sent_at, sender)
    if entry is None:
        raise BodyNotExpected(sender=sender, recipient=recipient, sent_at=sent_at)
    if size != entry.size:
        raise BodySizeMismatch(declared=entry.size, actual=size)
    if root != entry.root:
        raise BodyRootMismatch(expected=entry.root.hex())
    if entry.held:
        raise BodyDuplicate(sender=sender, recipient=recipient, sent_at=sent_at)

    entry.held = True
    state.touched.pages[recipient] = None
