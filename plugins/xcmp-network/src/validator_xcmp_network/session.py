# SPDX-License-Identifier: Apache-2.0
"""The session change, which is the last step of its block. Source: xcmp_rules 1.4 "Session change", 1.2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from validator_xcmp import session as xcmp

from validator.plugin.protocol_api import ChannelEventKind, ChannelId, Environment, SessionChange
from validator_xcmp_network.configuration import NETWORK_MAXIMA
from validator_xcmp_network.enactment import remove_messages
from validator_xcmp_network.state import NetworkState


def change_session(state: NetworkState, env: Environment, change: SessionChange) -> None:
    """Change the session of the channels, then remove the messages of those that are gone, and the queues of paras that leave.

    Everything is settled under the old configuration; then the new one takes effect.
    """
    own: dict[str, Any] = {name: value for name, value in change.new_config if name in NETWORK_MAXIMA}
    theirs = tuple((name, value) for name, value in change.new_config if name not in NETWORK_MAXIMA)
    channels = replace(change, new_config=theirs)
    change_channels = _change_channels if state.is_composed else _offboard_and_onboard
    for channel_id in change_channels(state, env, channels):
        remove_messages(state, channel_id, env.ingress)
    for para in change.outgoing:
        if state.queues.pop(para, None) is not None:
            state.touched.pages[para] = state.touched.paras[para] = None
    if own:
        state.network = replace(state.network, **own)


def _change_channels(state: NetworkState, env: Environment, change: SessionChange) -> list[ChannelId]:
    """Apply the rules of XCMP channels and return the channels that they have closed, in order."""
    events = env.events
    before = len(events.events)
    xcmp.change_session(state, env, change)
    gone = []
    for event in events.events[before:]:
        channel_id = event.sender, event.recipient
        if event.event is ChannelEventKind.OPENED:
            state.touched.channels[channel_id] = None
        elif event.event is ChannelEventKind.CLOSED:
            gone.append(channel_id)
    return gone


def _offboard_and_onboard(state: NetworkState, env: Environment, change: SessionChange) -> list[ChannelId]:
    """Offboard and onboard paras, and return the fixed channels that leave with a para, in order. Pending candidates stay."""
    state.session_index += 1
    env.events.session = state.session_index
    gone: list[ChannelId] = []
    for para in dict.fromkeys(sorted(change.outgoing)):
        xcmp.offboard_para(state, env.events, para, {})
        gone += state.fixed_channels.remove_para(para)
    for onboarding in change.onboarding:
        xcmp.onboard_para(state, onboarding)
    if change.new_config:
        state.configuration = replace(state.configuration, **dict(change.new_config))
    return gone
