# SPDX-License-Identifier: Apache-2.0
"""Where a webhook may go: the form of its URL, and addresses that belong to nobody's own networks. Pure.

Sources: the registries of special-purpose addresses of RFC 6890, as `ipaddress` and `SPECIAL` have them; NAT64 of RFC 6052 and RFC 8215,
6to4 of RFC 3056, whose addresses hold an IPv4 address that a translator may reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from validator_webhook.limits import URL_CHARACTERS_MAX

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

NAT64: Final = IPv6Network("64:ff9b::/96")
COMPATIBLE: Final = IPv6Network("::/96")
SPECIAL: Final = tuple(
    map(
        ip_network,
        ("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "64:ff9b:1::/48", "100::/64", "2001::/23", "3fff::/20",
         "5f00::/16", "fec0::/10"),
    )
)  # fmt: skip
"""Networks that not every version of `ipaddress` knows as special."""
AZURE_HOST: Final = ip_address("168.63.129.16")
"""A public address that machines of Azure reach their host's metadata at."""


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return networks such as ``10.0.0.0/8``; an address alone is a network of one. Raises ``ValueError``."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text))
        except ValueError as error:
            raise ValueError(f"expected networks such as 10.1.0.0/16, found {text[:80]!r}: {error}") from None
    return tuple(found)


def refusal(text: str, allowed: Iterable[Network]) -> str | None:
    """Return why nothing is sent to an address, None if it may be used. Raises ``ValueError`` for a text that is no address."""
    if is_within(text, allowed):
        return None
    address = ip_address(text.partition("%")[0])
    for each in (address, *_held(address)):
        kind = _kind(each)
        if kind is not None:
            name = text if each is address else f"{each} in {text}"
            return f"{name} is {kind}; allow_networks does not allow it"
    return None


def is_within(text: str, allowed: Iterable[Network]) -> bool:
    """Return whether an address, or an IPv4 address that it holds, is in one of the networks. Raises ``ValueError``."""
    address = ip_address(text.partition("%")[0])
    return any(each in network for network in allowed for each in (address, *_held(address)))


def _held(address: Address) -> Iterator[Address]:
    """Yield the IPv4 addresses that an IPv6 address holds."""
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address in NAT64 or (address in COMPATIBLE and int(address) > 1):
        yield IPv4Address(int(address) & 0xFFFF_FFFF)


def _kind(address: Address) -> str | None:
    """Return in words which special address it is, None for one of the public network."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return None  # the IPv4 address that it holds decides
    if address.is_unspecified:
        return "the unspecified address"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address == AZURE_HOST:
        return "an address of cloud metadata"
    if address.is_private or any(address in network for network in SPECIAL):
        return "an address of a private network"
    if address in NAT64 or (isinstance(address, IPv6Address) and address.sixtofour is not None):
        return None  # likewise
    if address.is_reserved or not address.is_global:
        return "a reserved address"
    return None


def check_url(url: str, *, allow_http: bool, allowed: Iterable[Network]) -> None:
    """Raise ``ValueError`` for a URL that nothing is sent to.

    Checks, in order: its length and characters, its parts, its scheme, a host and no login, its port, an address in place of a name.
    """
    if not 1 <= len(url) <= URL_CHARACTERS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"url: expected 1 to {URL_CHARACTERS_MAX} printable ASCII characters without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"url: expected an address such as https://example.com/hook: {error}") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and allow_http):
        hint = "; allow_http allows http" if parts.scheme == "http" else ""
        raise ValueError(f"url: expected https, found {parts.scheme[:20]!r}{hint}")
    if not parts.hostname or "@" in parts.netloc or "\\" in url:
        raise ValueError("url: expected a host without a login, such as https://example.com/hook")
    if port == 0 or parts.fragment:
        raise ValueError("url: expected no port 0 and no fragment")
    try:
        why = refusal(parts.hostname, allowed)
    except ValueError:
        return  # a name, whose addresses are checked at each connection
    if why is not None:
        raise ValueError(f"url: {why}")
