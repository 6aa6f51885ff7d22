# SPDX-License-Identifier: Apache-2.0
"""The reasons why the protocol rejects an input, one class each; those of XCMP channels are in `validator_xcmp.errors`.

Names and fields come from xcmp_rules 2.3; a channel is ``"sender->recipient"``, a message ``(block, sender)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from validator.plugin.protocol_api import BlockNumber, ParaId, Violation
from validator_xcmp_network.records import MessageName

# --- candidates --------------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CandidateUnknownPara(Violation):
    """The candidate's para is not registered."""

    kind: ClassVar[str] = "Candidate/UnknownPara"
    clause: ClassVar[str] = "xcmp_rules 2.3"
    para: ParaId


@dataclass(eq=False)
class CandidateAlreadyEnactedInBlock(Violation):
    """The para already has a candidate in this block."""

    kind: ClassVar[str] = "Candidate/AlreadyEnactedInBlock"
    clause: ClassVar[str] = "xcmp_rules 1.4 nouns (N-I11)"
    para: ParaId
    block: BlockNumber


@dataclass(eq=False)
class OutboxNotSorted(Violation):
    """A message's recipient is lower than the one before."""

    kind: ClassVar[str] = "Outbox/NotSorted"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 1"
    idx: int


@dataclass(eq=False)
class OutboxDuplicateRecipient(Violation):
    """Two messages go to the same recipient."""

    kind: ClassVar[str] = "Outbox/DuplicateRecipient"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 1"
    idx: int
    recipient: ParaId


@dataclass(eq=False)
class OutboxNoSuchChannel(Violation):
    """There is no channel to a message's recipient."""

    kind: ClassVar[str] = "Outbox/NoSuchChannel"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 1"
    idx: int
    channel: str


@dataclass(eq=False)
class OutboxChannelFull(Violation):
    """With a message, its channel has more unacknowledged messages than it may hold."""

    kind: ClassVar[str] = "Outbox/ChannelFull"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 2 (N-I03)"
    idx: int
    channel: str
    count: int
    limit: int


@dataclass(eq=False)
class OutboxIngressFull(Violation):
    """With a message, its recipient has more unacknowledged messages than the chain allows over all senders."""

    kind: ClassVar[str] = "Outbox/IngressFull"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 2 (N-I03)"
    idx: int
    recipient: ParaId
    count: int
    limit: int


@dataclass(eq=False)
class OutboxBytesExceeded(Violation):
    """The candidate's messages declare more bytes in total than a block allows."""

    kind: ClassVar[str] = "Outbox/BytesExceeded"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 2 (N-I04)"
    total: int
    limit: int


@dataclass(eq=False)
class OutboxBitfieldMismatch(Violation):
    """The recipients of the messages are not those of the set bits."""

    kind: ClassVar[str] = "Outbox/BitfieldMismatch"
    clause: ClassVar[str] = "xcmp_rules 1.1 composed"


@dataclass(eq=False)
class AckAheadRelayParent(Violation):
    """An acknowledged message was sent after the candidate's relay parent."""

    kind: ClassVar[str] = "Ack/AheadRelayParent"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 3"
    block: BlockNumber
    sender: ParaId


@dataclass(eq=False)
class AckUnknownMessage(Violation):
    """There is no such message."""

    kind: ClassVar[str] = "Ack/UnknownMessage"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 3 (N-I09)"
    block: BlockNumber
    sender: ParaId


@dataclass(eq=False)
class AckAlreadyAcked(Violation):
    """The message has already been acknowledged."""

    kind: ClassVar[str] = "Ack/AlreadyAcked"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 3 (N-I05)"
    block: BlockNumber
    sender: ParaId


@dataclass(eq=False)
class AckNoProgress(Violation):
    """Nothing is acknowledged although messages are unread; ``pending`` has the first of those sent up to the relay parent."""

    kind: ClassVar[str] = "Ack/NoProgress"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 4"
    pending: tuple[MessageName, ...]


@dataclass(eq=False)
class AckGap(Violation):
    """A message of ``block`` is acknowledged before all earlier ones are; ``missing`` has the first of those."""

    kind: ClassVar[str] = "Ack/Gap"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 5"
    block: BlockNumber
    missing: tuple[MessageName, ...]


@dataclass(eq=False)
class AckOutOfOrder(Violation):
    """Of the highest block, other senders are acknowledged than the lowest ones; ``expected`` has as many of these."""

    kind: ClassVar[str] = "Ack/OutOfOrder"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 6 (N-I01)"
    block: BlockNumber
    expected: tuple[ParaId, ...]


@dataclass(eq=False)
class AckBodyMissing(Violation):
    """Nobody has reported the body of an acknowledged message."""

    kind: ClassVar[str] = "Ack/BodyMissing"
    clause: ClassVar[str] = "xcmp_rules 1.4 acceptance 7 (N-I06)"
    block: BlockNumber
    sender: ParaId


# --- bodies ------------------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class BodyNotExpected(Violation):
    """The recipient's ingress queue does not list such a message."""

    kind: ClassVar[str] = "Body/NotExpected"
    clause: ClassVar[str] = "xcmp_rules 1.4 bodies (N-I07)"
    sender: ParaId
    recipient: ParaId
    sent_at: BlockNumber


@dataclass(eq=False)
class BodySizeMismatch(Violation):
    """The body has another size than the sender's candidate declares, in bytes."""

    kind: ClassVar[str] = "Body/SizeMismatch"
    clause: ClassVar[str] = "xcmp_rules 1.4 bodies"
    declared: int
    actual: int


@dataclass(eq=False)
class BodyRootMismatch(Violation):
    """The body has another root than the sender's candidate declares, which is ``expected``, in hex."""

    kind: ClassVar[str] = "Body/RootMismatch"
    clause: ClassVar[str] = "xcmp_rules 1.4 bodies (N-I10)"
    expected: str


@dataclass(eq=False)
class BodyDuplicate(Violation):
    """The body has already been reported."""

    kind: ClassVar[str] = "Body/Duplicate"
    clause: ClassVar[str] = "xcmp_rules 1.4 bodies"
    sender: ParaId
    recipient: ParaId
    sent_at: BlockNumber


# --- channel requests --------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RequestNotInForce(Violation):
    """The chain's channels are fixed: nobody opens or closes one."""

    kind: ClassVar[str] = "RequestNotInForce"
    clause: ClassVar[str] = "xcmp_rules 1.4 session change"
    request: str
