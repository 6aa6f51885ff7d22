# SPDX-License-Identifier: Apache-2.0
"""Rates: token buckets, also one for each address or peer in bounded memory. Source: channel_rules 3.3 "handshake flood"."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict


class TokenBucket:
    """``burst`` tokens at the start, and ``per_s`` new ones each second; ``now`` is in seconds of a monotonic clock."""

    def __init__(self, per_s: float, burst: int, now: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def set_rate(self, per_s: float, burst: int, now: float) -> None:
        """Change rate and burst; tokens above the new burst are lost."""
        self._fill(now)
        self._per_s, self._burst = per_s, burst
        self._tokens = min(self._tokens, float(burst))

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self._fill(now)
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_s

    def _fill(self, now: float) -> None:
        self._tokens = min(float(self._burst), self._tokens + max(0.0, now - self._at) * self._per_s)
        self._at = now


class TokenBuckets:
    """A token bucket for each key: ``burst`` events at once and ``per_second`` in the long run; remembers at most ``keys_max`` keys."""

    def __init__(self, per_second: float, burst: int, keys_max: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._keys_max = keys_max
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> bool:
        """Take a token of a key at a time in seconds, and return whether there was one; the key seen longest ago is forgotten."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._per_second, self._burst, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._keys_max:
            self._buckets.popitem(last=False)
        return not bucket.take(now)


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
