# SPDX-License-Identifier: Apache-2.0
"""What a protocol has to be able to do, so that a block can be executed by it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from validator.core.outcomes import ChannelEvent, ChannelHeadroom, Dispatch, MessageRef, ParaHeadroom
from validator.core.types import BlockNumber, DownwardMessage, Hash, PendingRef, SessionChange, SessionIndex


class Effects(NamedTuple):
    """What an accepted input did; the fields go into its verdict as they are (`outcomes.Verdict`)."""

    enacted: bool = True
    messages: tuple[MessageRef, ...] = ()
    effective_session: SessionIndex | None = None
    expires_session: SessionIndex | None = None
    candidate_hash: bytes | None = None


class RuleSet(Protocol):
    """One lane's state under one protocol.

    The `apply_` methods either apply an input whole or raise a `Violation` and change nothing. Requests and candidates are of the
    protocol's own types.
    """

    def request(self, fields: tuple[Any, ...]) -> Any:
        """Return the channel request that a decoded record holds."""

    def downward(self, fields: tuple[Any, ...]) -> DownwardMessage:
        """Return the downward message that a decoded record holds."""

    def candidate(self, fields: tuple[Any, ...]) -> Any:
        """Return the candidate that a decoded record holds."""

    def begin_block(self, now: BlockNumber) -> None:
        """Start block ``now``; everything until `end_block` happens in it."""

    def apply_inclusion(self, ref: PendingRef) -> Effects:
        """Enact a pending candidate."""

    def apply_timeout(self, ref: PendingRef) -> Effects:
        """Drop a pending candidate."""

    def apply_request(self, request: Any) -> Effects:
        """Apply a channel request."""

    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message."""

    def check_candidate(self, candidate: Any) -> None:
        """Raise the `Violation` for which a candidate is not acceptable, if there is one."""

    def enact_candidate(self, candidate: Any) -> Effects:
        """Apply a candidate that has been accepted; cannot fail."""

    def apply_candidate(self, candidate: Any) -> Effects:
        """Accept a candidate; enact it where the chain enacts immediately, else keep it pending."""

    def dispatch(self) -> list[Dispatch]:
        """Run the block's round of upward message dispatch."""

    def change_session(self, change: SessionChange) -> None:
        """Change the session."""

    def end_block(self) -> list[ChannelEvent]:
        """End the block and return what it told about channels."""

    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the headroom of everything that changed since the last call: paras, then channels, each ascending."""

    @property
    def session(self) -> SessionIndex:
        """The current session's index."""

    def state_root(self) -> Hash:
        """Return the root over the canonical encoding of the whole state."""

    def common_pages(self) -> list[bytes]:
        """Return the canonical encoding of what no para owns, and of what has not been told yet."""

    def owners(self) -> Collection[int]:
        """Return, ascending, the owners that may have a page: paras by their id, u64 above them for whatever else there is."""

    def page(self, owner: int) -> bytes | None:
        """Return the canonical encoding of what an owner has, None where that is nothing."""

    def changed(self) -> Collection[int]:
        """Return whose pages have changed since the last `mark_saved`."""

    def mark_saved(self) -> None:
        """Take note that all pages have been saved as they are now."""


def pages(rules: RuleSet) -> list[bytes]:
    """Return the canonical encoding of a whole state: the common pages, then those of owners, ascending."""
    return [*rules.common_pages(), *filter(None, map(rules.page, rules.owners()))]
