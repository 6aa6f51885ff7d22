# SPDX-License-Identifier: Apache-2.0
"""A small running chain, for tests of a single aspect."""

from __future__ import annotations

from validator_early_hrmp.records import Candidate, CloseChannel, HrmpMessage
from validator_early_hrmp.rules import EARLY_HRMP
from validator_early_hrmp.state import EarlyHrmpConfiguration

from validator.core.rules import LaneRules
from validator.plugin.protocol_api import ChainSettings, DownwardMessage, Enactment, Para, SessionChange
from validator.protocols.kit import AcceptOpenChannel, InitOpenChannel

CONFIGURATION = EarlyHrmpConfiguration(
    hrmp_channel_max_places=3,
    hrmp_channel_max_size=20,
    hrmp_max_outbound_channels=4,
    hrmp_sender_deposit=10,
    hrmp_recipient_deposit=7,
    hrmp_open_request_ttl=2,
)


def chain(*paras: int, enactment: Enactment = Enactment.IMMEDIATE) -> LaneRules:
    """Return a chain in block 1 with paras that own 100 each."""
    rules = EARLY_HRMP.at_genesis(
        ChainSettings(CONFIGURATION, tuple(Para(para, balance=100) for para in paras), enactment=enactment)
    )
    rules.begin_block(1)
    return rules


def open_channels(rules: LaneRules, *channels: tuple[int, int]) -> None:
    """Ask for channels, accept them and end the session."""
    for sender, recipient in channels:
        at = len(rules.state.open_requests)
        rules.apply_request(InitOpenChannel(sender, recipient))
        rules.apply_request(AcceptOpenChannel(recipient, at))
    rules.change_session(SessionChange())


def candidate(para: int, watermark: int, **sent: str) -> Candidate:
    """Return a candidate whose relay parent is its watermark; ``sent`` is payload by recipient, as in ``p2="01"``."""
    messages = (HrmpMessage(para, int(to[1:]), bytes.fromhex(payload)) for to, payload in sent.items())
    return Candidate(para, watermark, watermark, tuple(messages))


def lived() -> LaneRules:
    """Return a chain of paras 1, 2 and 3 with something in every part of its state; 1 was offboarded and is back."""
    rules = chain(1, 2, 3)
    open_channels(rules, (1, 2), (3, 2), (2, 3))
    rules.begin_block(2)
    rules.apply_candidate(candidate(1, 1, p2="01"))
    rules.change_session(SessionChange(outgoing=(1,), onboarding=(Para(1, balance=5),)))
    rules.begin_block(3)
    open_channels(rules, (1, 2))
    rules.begin_block(4)
    rules.apply_downward(DownwardMessage(2, b"relay"))
    rules.apply_candidate(candidate(1, 3, p2="0203"))
    rules.apply_candidate(candidate(3, 3, p2="04"))
    rules.apply_request(CloseChannel(3, 3, 2))
    rules.change_session(SessionChange())
    rules.begin_block(5)
    rules.apply_request(CloseChannel(2, 1, 2))
    rules.apply_request(InitOpenChannel(2, 1))
    rules.apply_request(InitOpenChannel(1, 3))
    rules.apply_request(AcceptOpenChannel(1, 0))
    return rules
