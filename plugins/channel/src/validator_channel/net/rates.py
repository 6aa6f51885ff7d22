# SPDX-License-Identifier: Apache-2.0
"""Rates: a token bucket for each address or peer, in bounded memory. Source: channel_rules 3.3 "handshake flood"."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict


class TokenBuckets:
    """Allows ``burst`` events of one key at once and ``per_second`` in the long run; remembers at most ``keys_max`` keys."""

    def __init__(self, per_second: float, burst: int, keys_max: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._keys_max = keys_max
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> bool:
        """Take a token of a key at a time in seconds, and return whether there was one; the key seen longest ago is forgotten."""
        tokens, at = self._buckets.get(key, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._per_second)
        is_allowed = tokens >= 1
        self._buckets[key] = (tokens - is_allowed, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._keys_max:
            self._buckets.popitem(last=False)
        return is_allowed


def address_key(host: str) -> str:
    """Return under which key an address is limited: an IPv4 address itself, an IPv6 address with its /64 network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), 64), strict=False))
