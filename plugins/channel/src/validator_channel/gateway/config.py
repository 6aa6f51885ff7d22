# SPDX-License-Identifier: Apache-2.0
"""The configuration of a gateway: the table `[transports.channel]` of validator.toml."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from validator_channel.limits import STRICT, ConnectionLimits, ConnectLimits, GatewayLimits, ListenerLimits, Settings
from validator_channel.net.sockets import parse_address
from validator_channel.net.tls import TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """The settings of a session that are worth changing. Raises ``ValueError`` as `Settings` does."""

    __pydantic_config__: ClassVar = STRICT
    ack_timeout_s: float = 2.0
    """Seconds until a message to a peer is transmitted again for the first time; then twice as long each time."""
    ack_timeout_s_max: float = 30.0
    """Seconds that this interval never exceeds."""
    retries_max: int = 5
    """Times that a message is transmitted again before the session ends."""
    window_records: int = 64
    """Records of a topic that a peer may have without an acknowledgement."""
    in_flight_records: int = 32
    """Records of a topic that a peer gets without having acknowledged them."""
    frame_bytes_max: int = 1_048_576
    """Bytes of a frame; a record in base64 with its metadata has to fit."""
    session_age_s_max: float = 86_400.0
    """Seconds after which a session is left, so that its keys change; its peer connects again."""

    def __post_init__(self) -> None:
        self.settings()

    def settings(self) -> Settings:
        """Return the settings of the gateway's sessions: a record is acknowledged only when Kafka has it."""
        return Settings(
            ack_timeout=self.ack_timeout_s,
            max_ack_timeout=self.ack_timeout_s_max,
            max_retries=self.retries_max,
            window=self.window_records,
            max_inflight=self.in_flight_records,
            max_frame=self.frame_bytes_max,
            manual_ack=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Paths are relative to the working directory. Raises ``ValueError`` for an address that is not HOST:PORT."""

    listen: str
    """HOST:PORT; an IPv6 address stands in brackets. Port 0 is a free one."""
    certificate: str
    """PEM file with the gateway's certificate and any intermediate ones."""
    key: str
    """PEM file with its Ed25519 key, which only its owner may read."""
    ca: str
    """PEM file with the CA of the peers' certificates."""
    registry: str
    """The registry of peers, `peers.toml`."""
    crl: str | None = None
    """PEM file with the CRL of this CA; once it is stale, nobody can connect. Without it nothing is revoked."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    session: SessionLimits = field(default_factory=SessionLimits)
    connect: ConnectLimits = field(default_factory=ConnectLimits)

    def __post_init__(self) -> None:
        self.address()

    def address(self) -> tuple[str, int]:
        """Return host and port. Raises ``ValueError``."""
        try:
            return parse_address(self.listen)
        except ValueError as error:
            raise ValueError(f"listen: {error}") from None

    def tls_files(self) -> TlsFiles:
        crl = None if self.crl is None else Path(self.crl)
        return TlsFiles(Path(self.certificate), Path(self.key), Path(self.ca), crl)

    def listener_limits(self) -> ListenerLimits:
        connection = ConnectionLimits(max_session_age=self.session.session_age_s_max)
        return ListenerLimits(connection=connection, **asdict(self.connect))
