# SPDX-License-Identifier: Apache-2.0
"""Addresses that endpoints listen on."""

from __future__ import annotations

import ipaddress
from typing import Final

PORT_MAX: Final = 65_535
LOOPBACK_NAME: Final = "localhost"


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of an address such as 127.0.0.1:9464 or [::1]:9464. Raises ``ValueError``."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # an IPv6 address without brackets
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise ValueError(f"expected HOST:PORT such as 127.0.0.1:9464 or [::1]:9464, found {text!r}")
    if host != LOOPBACK_NAME:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f"expected an IP address or {LOOPBACK_NAME}, found {host!r}") from None
    return host, int(port)
