# SPDX-License-Identifier: Apache-2.0
"""What traffic and models are written with: random draws, results, hashing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


class Draws(Random):
    """A seeded source of draws; results depend on the order of the calls."""

    def percent(self, chance: int) -> bool:
        """Return True with a probability of ``chance`` percent."""
        return self.randrange(100) < chance

    def one_of(self, items: Sequence[T]) -> T | None:
        """Return one of the items, or None if there are none."""
        return self.choice(items) if items else None

    def count(self, per_100: int) -> int:
        """Return a random count with a mean of a hundredth of ``per_100``."""
        if per_100 > 400:
            return per_100 // 100
        return sum(self.random() * 400 < per_100 for _ in range(4))

    def hex(self, size: int) -> str:
        """Return ``size`` random bytes in hex."""
        return self.randbytes(size).hex()


class LeastMet:
    """Chooses which rule to break next: the error kinds met least come first."""

    def __init__(self, draws: Draws, kinds: Iterable[str]) -> None:
        self.draws = draws
        self.met = dict.fromkeys(kinds, 0)

    def order(self) -> list[str]:
        """Return every kind in the order in which to try them."""
        return sorted(self.draws.sample(list(self.met), len(self.met)), key=self.met.__getitem__)

    def note(self, result: dict[str, Any]) -> None:
        """Count the error of a result, if it has one."""
        if not result["ok"]:
            self.met[result["error"]["kind"]] += 1


Json: TypeAlias = dict[str, Any]


def accepted(received: Sequence[Json] = ()) -> Json:
    """Return the result of an input that breaks no rule, with the ranges of the messages that its para received by it, if any."""
    return {"ok": True, "received": list(received)} if received else {"ok": True}


def message_range(sender: int | None, taken: int, payloads: Sequence[str]) -> Json:
    """Return the range of messages that leave a queue from which ``taken`` have left before; ``sender`` is None for a downward queue."""
    return {
        "sender": sender,
        "first": taken + 1,
        "last": taken + len(payloads),
        "bytes": sum(size_of(payload) for payload in payloads),
    }


def failed(kind: str, **fields: Any) -> Json:
    """Return the result of a broken rule: its kind and its fields."""
    return {"ok": False, "error": {"kind": kind, **fields}}


def size_of(payload: str) -> int:
    """Return the length in bytes of a hex payload."""
    return len(payload) // 2


def blake2b_256(data: bytes) -> bytes:
    """Return the 32-byte BLAKE2b digest."""
    return blake2b(data, digest_size=32).digest()


def compact(number: int) -> bytes:
    """Return the SCALE compact form of a number below 2**536. Source: router_rules 1.2."""
    if number < 1 << 6:
        return bytes([number * 4])
    if number < 1 << 14:
        return (number * 4 + 1).to_bytes(2, "little")
    if number < 1 << 30:
        return (number * 4 + 2).to_bytes(4, "little")
    size = (number.bit_length() + 7) // 8
    return bytes([(size - 4) * 4 + 3]) + number.to_bytes(size, "little")


def next_head(previous: bytes, block: int, message: bytes) -> bytes:
    """Return the head of a message queue chain after one more message. Source: router_rules 1.2, xcmp_rules 1.1."""
    return blake2b_256(previous + block.to_bytes(4, "little") + blake2b_256(compact(len(message)) + message))
