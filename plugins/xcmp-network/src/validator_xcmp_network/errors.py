# SPDX-License-Identifier: Apache-2.0
"""The reasons why the protocol rejects an input, one class each; those of XCMP channels are in `validator_xcmp.errors`.

Names and fields come from xcmp_rules 2.3; a channel is ``"sender->recipient"``, a message ``(block, sender)``.
"""

from __future__ import annotations

from validator.plugin.protocol_api import BlockNumber, ParaId, Violation
from validator_xcmp_network.records import MessageName

# --- candidates --------------------------------------------------------------------------------------------------------------------------


class CandidateUnknownPara(Violation, kind="Candidate/UnknownPara", clause="xcmp_rules 2.3", rule="N-11"):
    """The candidate's para is not registered."""

    para: ParaId


class CandidateAlreadyEnactedInBlock(
    Violation, kind="Candidate/AlreadyEnactedInBlock", clause="xcmp_rules 1.4 nouns (N-I11)", rule="N-11"
):
    """The para already has a candidate in this block."""

    para: ParaId
    block: BlockNumber


class OutboxNotSorted(Violation, kind="Outbox/NotSorted", clause="xcmp_rules 1.4 acceptance 1", rule="N-12"):
    """A message's recipient is lower than the one before."""

    idx: int


class OutboxDuplicateRecipient(
    Violation, kind="Outbox/DuplicateRecipient", clause="xcmp_rules 1.4 acceptance 1", rule="N-12"
):
    """Two messages go to the same recipient."""

    idx: int
    recipient: ParaId


class OutboxNoSuchChannel(Violation, kind="Outbox/NoSuchChannel", clause="xcmp_rules 1.4 acceptance 1", rule="N-12"):
    """There is no channel to a message's recipient."""

    idx: int
    channel: str


class OutboxChannelFull(
    Violation, kind="Outbox/ChannelFull", clause="xcmp_rules 1.4 acceptance 2 (N-I03)", rule="N-13"
):
    """With this message the channel has ``count`` unacknowledged messages."""

    idx: int
    channel: str
    count: int
    limit: int


class OutboxIngressFull(
    Violation, kind="Outbox/IngressFull", clause="xcmp_rules 1.4 acceptance 2 (N-I03)", rule="N-13"
):
    """With this message the recipient has ``count`` unacknowledged messages over all senders."""

    idx: int
    recipient: ParaId
    count: int
    limit: int


class OutboxBytesExceeded(
    Violation, kind="Outbox/BytesExceeded", clause="xcmp_rules 1.4 acceptance 2 (N-I04)", rule="N-14"
):
    """The candidate's messages declare ``total`` bytes."""

    total: int
    limit: int


class OutboxBitfieldMismatch(Violation, kind="Outbox/BitfieldMismatch", clause="xcmp_rules 1.1 composed", rule="N-15"):
    """The recipients of the messages are not those of the set bits."""


class AckAheadRelayParent(Violation, kind="Ack/AheadRelayParent", clause="xcmp_rules 1.4 acceptance 3", rule="N-17"):
    """The message was sent after the candidate's relay parent."""

    block: BlockNumber
    sender: ParaId


class AckUnknownMessage(
    Violation, kind="Ack/UnknownMessage", clause="xcmp_rules 1.4 acceptance 3 (N-I09)", rule="N-18"
):
    """There is no such message."""

    block: BlockNumber
    sender: ParaId


class AckAlreadyAcked(Violation, kind="Ack/AlreadyAcked", clause="xcmp_rules 1.4 acceptance 3 (N-I05)", rule="N-18"):
    """The message has already been acknowledged, or is named twice."""

    block: BlockNumber
    sender: ParaId


class AckNoProgress(Violation, kind="Ack/NoProgress", clause="xcmp_rules 1.4 acceptance 4", rule="N-19"):
    """Nothing is acknowledged.

    ``pending`` lists the ``[block, sender]`` of the unread messages that are visible at the relay parent, in queue order.
    """

    pending: tuple[MessageName, ...]


class AckGap(Violation, kind="Ack/Gap", clause="xcmp_rules 1.4 acceptance 5", rule="N-20"):
    """A message of ``block`` is acknowledged.

    ``missing`` lists the ``[block, sender]`` of the earlier unread messages that are not covered.
    """

    block: BlockNumber
    missing: tuple[MessageName, ...]


class AckOutOfOrder(Violation, kind="Ack/OutOfOrder", clause="xcmp_rules 1.4 acceptance 6 (N-I01)", rule="N-21"):
    """Of ``block``, other senders are acknowledged than the lowest ones, which ``expected`` lists."""

    block: BlockNumber
    expected: tuple[ParaId, ...]


class AckBodyMissing(Violation, kind="Ack/BodyMissing", clause="xcmp_rules 1.4 acceptance 7 (N-I06)", rule="N-22"):
    """Nobody has reported the body of this message."""

    block: BlockNumber
    sender: ParaId


# --- bodies ------------------------------------------------------------------------------------------------------------------------------


class BodyNotExpected(Violation, kind="Body/NotExpected", clause="xcmp_rules 1.4 bodies (N-I07)", rule="N-31"):
    """The recipient's ingress queue does not list such a message: it is acknowledged, removed, or was never sent."""

    sender: ParaId
    recipient: ParaId
    sent_at: BlockNumber


class BodySizeMismatch(Violation, kind="Body/SizeMismatch", clause="xcmp_rules 1.4 bodies", rule="N-31"):
    """The body has another size than the sender's candidate declares, in bytes."""

    declared: int
    actual: int


class BodyRootMismatch(Violation, kind="Body/RootMismatch", clause="xcmp_rules 1.4 bodies (N-I10)", rule="N-31"):
    """The body has another root than the sender's candidate declares.

    Other bytes, another order and another split into payloads all give another one.
    """

    expected: str


class BodyDuplicate(Violation, kind="Body/Duplicate", clause="xcmp_rules 1.4 bodies", rule="N-31"):
    """The body has already been reported."""

    sender: ParaId
    recipient: ParaId
    sent_at: BlockNumber


# --- channel requests --------------------------------------------------------------------------------------------------------------------


class RequestNotInForce(Violation, kind="RequestNotInForce", clause="xcmp_rules 1.4 session change", rule="N-41"):
    """The chain's channels are fixed, so ``request`` is refused."""

    request: str
