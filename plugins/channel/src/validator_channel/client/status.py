# SPDX-License-Identifier: Apache-2.0
"""Where a client stands with its gateways, for those who show it, and what it can find out itself about a refusal without a reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from validator_channel.client.config import ClientConfig
from validator_channel.ids import format_id
from validator_channel.net.files import MALFORMED, FileError, load_certificates
from validator_channel.net.handshake import HandshakeFailed
from validator_channel.net.identity import peers_of
from validator_channel.net.limits import SHOWN_PEERS_MAX
from validator_channel.net.reasons import SILENT


@dataclass(frozen=True, slots=True)
class Status:
    """The gateway that is tried or that there is a session with.

    ``failures`` are the attempts in a row that came to nothing; ``failure`` says in one line what ended the last attempt or session.
    ``pause_s`` are the seconds until the next attempt, 0 while one is under way.
    """

    gateway: str
    is_online: bool = False
    failures: int = 0
    failure: str | None = None
    pause_s: float = 0.0


def explain(config: ClientConfig, failure: HandshakeFailed) -> str:
    """Return why an attempt has failed: what the protocol says, and for a refusal without a reason what is odd about our own files."""
    if failure.reason != SILENT:
        return str(failure)
    return "; ".join([str(failure), *_oddities(config)])


def _oddities(config: ClientConfig) -> list[str]:
    try:
        leaf = load_certificates(config.tls.certificate)[0]
        authorities = load_certificates(config.tls.ca)
        peers = peers_of(leaf)
    except (FileError, *MALFORMED):  # they may be in the middle of a rotation
        return []
    found = []
    if config.peer not in peers:
        names = ", ".join(sorted(map(format_id, peers))[:SHOWN_PEERS_MAX]) or "no peer"
        found.append(f"our certificate is of {names}, we are {format_id(config.peer)}")
    if leaf.not_valid_before_utc > datetime.now(UTC):
        found.append(f"our certificate begins at {leaf.not_valid_before_utc:%FT%TZ}, in the future")
    if all(leaf.issuer != each.subject for each in authorities):
        found.append(f"our certificate is not of the CA in {config.tls.ca}")
    return found
