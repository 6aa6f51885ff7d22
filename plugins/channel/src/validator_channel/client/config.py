# SPDX-License-Identifier: Apache-2.0
"""A client's configuration: a small TOML file, every key of which the command line can override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from validator_channel.crypto import NO_PSK
from validator_channel.hello import Peering
from validator_channel.limits import CONFIG_BYTES_MAX, GATEWAYS_MAX
from validator_channel.net.peers import Peer
from validator_channel.net.sockets import parse_address
from validator_channel.net.tls import TlsFiles
from validator_channel.tables import PIN_EXPECTED, ConfigError, Table, is_pin, read_toml

KEYS: Final = ("gateways", "server_name", "peer", "gateway", "certificate", "key", "ca", "crl", "pins", "psk_file")
"""The keys of the file, in the order in which problems are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Where the gateways are, and who both sides are.

    ``gateways`` are tried in turn, for instance an active and a standby one. ``peer`` is the client's peer ID, ``gateway`` the one of the
    other end of its channel. ``server_name`` is what the gateway's certificate must name, by default its host. ``pins`` are SHA-256 digests
    of the gateway's keys.
    """

    gateways: tuple[tuple[str, int], ...]
    peer: int
    gateway: int
    tls: TlsFiles
    server_name: str | None = None
    pins: frozenset[bytes] = frozenset()
    psk: bytes = field(default=NO_PSK, repr=False)

    def gateway_peer(self) -> Peer:
        """Return what the transport has to know. Raises ``ValueError`` for peer IDs of two channels."""
        return Peer(peering=Peering(self.peer, self.gateway, self.psk), pins=self.pins)


def load_config(path: Path | None, overrides: Mapping[str, Any] | None = None) -> ClientConfig:
    """Return the configuration in a file, or in ``overrides`` alone; paths in the file are relative to its folder.

    An override that is None leaves the file's value. Raises `ConfigError` with all problems.
    """
    values: dict[str, Any] = {} if path is None else read_toml(path, CONFIG_BYTES_MAX)
    folder = Path() if path is None else path.parent
    for name in ("certificate", "key", "ca", "crl", "psk_file"):
        if isinstance(values.get(name), str):
            values[name] = str(folder / values[name])
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    table = Table("options: " if path is None else f"{path}: ", {**values, **given}, KEYS)
    gateways, server_name = _gateways(table), table.text("server_name")
    peer, gateway = table.peer("peer") or 0, table.peer("gateway") or 0
    certificate, key, ca = (Path(table.text(name, required=True) or "") for name in ("certificate", "key", "ca"))
    crl, pins, psk = table.text("crl"), _pins(table), table.psk()
    if not table.problems:
        try:
            Peering(peer, gateway)
        except ValueError as error:
            table.problems.append(f"{table.begins}gateway: {error}")
    if table.problems:
        raise ConfigError(*table.problems)
    tls = TlsFiles(certificate, key, ca, None if crl is None else Path(crl))
    return ClientConfig(
        gateways=gateways, peer=peer, gateway=gateway, tls=tls, server_name=server_name, pins=pins, psk=psk
    )


def _gateways(table: Table) -> tuple[tuple[str, int], ...]:
    value = table.values.get("gateways")
    try:
        if isinstance(value, list) and 1 <= len(value) <= GATEWAYS_MAX:
            return tuple(parse_address(str(each)) for each in value)
    except ValueError:
        pass
    table.problem("gateways", f"a list of 1 to {GATEWAYS_MAX} HOST:PORT")
    return ()


def _pins(table: Table) -> frozenset[bytes]:
    value = table.values.get("pins", [])
    if not isinstance(value, list) or not all(map(is_pin, value)):
        table.problem("pins", f"a list of {PIN_EXPECTED}")
        return frozenset()
    return frozenset(map(bytes.fromhex, value))
