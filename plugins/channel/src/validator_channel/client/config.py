# SPDX-License-Identifier: Apache-2.0
"""A client's configuration: a small TOML file, every key of which the command line can override."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from validator_channel.crypto import NO_PSK
from validator_channel.hello import Peering
from validator_channel.limits import CONFIG_BYTES_MAX, GATEWAYS_MAX
from validator_channel.net.certificates import read_psk
from validator_channel.net.peers import Peer
from validator_channel.net.sockets import parse_address
from validator_channel.net.tls import TlsFiles
from validator_channel.wire import parse_id

_PIN: Final = re.compile(r"[0-9a-f]{64}")
KEYS: Final = ("gateways", "server_name", "peer", "gateway", "certificate", "key", "ca", "crl", "pins", "psk_file")
"""The keys of the file, in the order in which problems are reported."""


class ConfigError(Exception):
    """A configuration that cannot be used; the text has one line for each problem."""


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
    table: dict[str, Any] = {} if path is None else _read(path)
    place = "options" if path is None else str(path)
    folder = Path() if path is None else path.parent
    problems = [f"{place}: {key}: no such key, expected one of {', '.join(KEYS)}" for key in table if key not in KEYS]
    for key in ("certificate", "key", "ca", "crl", "psk_file"):
        if isinstance(table.get(key), str):
            table[key] = str(folder / table[key])
    table |= {key: value for key, value in (overrides or {}).items() if value is not None}
    return _Reader(place, table, problems).config()


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
        if len(data) > CONFIG_BYTES_MAX:
            raise ConfigError(f"{path}: expected at most {CONFIG_BYTES_MAX} bytes")
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number without end, or nested too deeply
        raise ConfigError(f"{path}: expected TOML: {error}") from None


class _Reader:
    """Reads the keys of a table; each problem becomes a line."""

    def __init__(self, place: str, table: Mapping[str, Any], problems: list[str]) -> None:
        self._place = place
        self._table = table
        self._problems = problems

    def config(self) -> ClientConfig:
        gateways, server_name = self._gateways(), self._text("server_name")
        peer, gateway = self._peer("peer"), self._peer("gateway")
        certificate, key, ca = (Path(self._text(name, required=True) or "") for name in ("certificate", "key", "ca"))
        crl, pins, psk = self._text("crl"), self._pins(), self._psk()
        if not self._problems:
            try:
                Peering(peer, gateway)
            except ValueError as error:
                self._problems.append(f"{self._place}: gateway: {error}")
        if self._problems:
            raise ConfigError("\n".join(self._problems))
        tls = TlsFiles(certificate, key, ca, None if crl is None else Path(crl))
        return ClientConfig(
            gateways=gateways, peer=peer, gateway=gateway, tls=tls, server_name=server_name, pins=pins, psk=psk
        )

    def _problem(self, key: str, expected: str) -> None:
        found = repr(self._table[key])[:60] if key in self._table else "nothing"
        self._problems.append(f"{self._place}: {key}: expected {expected}, found {found}")

    def _text(self, key: str, *, required: bool = False) -> str | None:
        value = self._table.get(key)
        if isinstance(value, str) or (value is None and not required):
            return value
        self._problem(key, "text")
        return None

    def _gateways(self) -> tuple[tuple[str, int], ...]:
        value = self._table.get("gateways")
        try:
            if isinstance(value, list) and 1 <= len(value) <= GATEWAYS_MAX:
                return tuple(parse_address(str(each)) for each in value)
        except ValueError:
            pass
        self._problem("gateways", f"a list of 1 to {GATEWAYS_MAX} HOST:PORT")
        return ()

    def _peer(self, key: str) -> int:
        try:
            return parse_id(str(self._table.get(key)))
        except ValueError:
            self._problem(key, "32 lower-case hex digits")
            return 0

    def _pins(self) -> frozenset[bytes]:
        value = self._table.get("pins", [])
        if not isinstance(value, list) or not all(isinstance(each, str) and _PIN.fullmatch(each) for each in value):
            self._problem("pins", "a list of 64 lower-case hex digits")
            return frozenset()
        return frozenset(map(bytes.fromhex, value))

    def _psk(self) -> bytes:
        path = self._text("psk_file")
        if path is None:
            return NO_PSK
        try:
            return read_psk(Path(path))
        except ValueError as error:
            self._problems.append(f"{self._place}: psk_file: {error}")
            return NO_PSK
