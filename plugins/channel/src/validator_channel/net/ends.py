# SPDX-License-Identifier: Apache-2.0
"""How a session ended: a code of a fixed set, and apart from it what the peer says. Source: channel_rules 3.3 "log flood", 5.2."""

from __future__ import annotations

from typing import Final

from validator_channel.errors import FATAL, NOT_FATAL
from validator_channel.events import PeerError
from validator_channel.net.limits import SHOWN_CHARACTERS_MAX
from validator_channel.net.reasons import WORDS
from validator_channel.printing import quoted

CLEAN: Final = "CLEAN"
"""The end of a session that both sides have left."""
LEFT: Final = "LEFT"
"""The end of a session that this side left before it was ONLINE."""
PEER_ERROR: Final = "PEER_ERROR"
"""The end of a session by an ERROR whose code no ERROR of this protocol has."""
_OF_PEERS: Final = FATAL | NOT_FATAL


class Ending:
    """Collects why a session ends; ``ours`` is the code that this side has found, or empty. What this side finds comes first."""

    def __init__(self) -> None:
        self.ours = ""
        self._peer_error: PeerError | None = None

    def note_ours(self, code: str) -> None:
        """Take a code of this side; the first one counts."""
        self.ours = self.ours or str(code)

    def note_peer_error(self, error: PeerError) -> None:
        """Take an ERROR of the peer; the last one counts."""
        self._peer_error = error

    def code(self, *, is_clean: bool) -> str:
        """Return the code of the end, which no peer can choose freely."""
        if is_clean:
            return CLEAN
        if self.ours or self._peer_error is None:
            return self.ours or LEFT
        return self._peer_error.code if self._peer_error.code in _OF_PEERS else PEER_ERROR

    def fields(self, *, is_clean: bool) -> str:
        """Return what the peer has said of this end as fields of a log line, in quotes and cut; empty if it has not ended the session."""
        error = self._decisive(is_clean=is_clean)
        if error is None:
            return ""
        detail = f" detail={_shown(error.detail)}" if error.detail else ""
        return f" peer_error={_shown(error.code)}{detail}"

    def reason(self, *, is_clean: bool) -> str:
        """Return why there is no session, if the peer has ended it in its words; otherwise empty: the code says it."""
        error = self._decisive(is_clean=is_clean)
        if error is None or (error.code in _OF_PEERS and not error.detail):
            return ""
        words = WORDS.get(error.code) if error.code in _OF_PEERS else None
        detail = f": {_shown(error.detail)}" if error.detail else ""
        return (
            f"{words}; the other end reports{detail}"
            if words
            else f"the other end reports {_shown(error.code)}{detail}"
        )

    def _decisive(self, *, is_clean: bool) -> PeerError | None:
        return None if is_clean or self.ours else self._peer_error


def _shown(text: str) -> str:
    return quoted(text[:SHOWN_CHARACTERS_MAX])
