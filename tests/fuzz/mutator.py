# SPDX-License-Identifier: Apache-2.0
"""Makes inputs from valid ones: bytes changed, pieces removed, repeated, moved from one input to another, or inserted from a list."""

from __future__ import annotations

from random import Random
from typing import Final

INPUT_BYTES_MAX: Final = 64 * 1024
"""Bytes of a mutated input."""
CHANGES_MAX: Final = 4


class Mutator:
    """Mutates inputs; the same seed makes the same inputs."""

    def __init__(self, inputs: list[bytes], words: tuple[bytes, ...], seed: int) -> None:
        self.inputs = inputs
        self.words = words
        self.random = Random(seed)

    def next(self) -> bytes:
        """Return a new input."""
        random = self.random
        data = bytearray(random.choice(self.inputs))
        for _ in range(random.randint(1, CHANGES_MAX)):
            random.choice(_CHANGES)(self, data)
        return bytes(data[:INPUT_BYTES_MAX])

    def span(self, data: bytes | bytearray) -> tuple[int, int]:
        """Return the borders of a piece, mostly a short one."""
        random = self.random
        start = random.randint(0, len(data))
        size = random.choice((0, 1, 1, 2, 4, 8, 32, len(data)))
        return start, min(len(data), start + size)

    def flip(self, data: bytearray) -> None:
        if data:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)

    def replace(self, data: bytearray) -> None:
        if data:
            data[self.random.randrange(len(data))] = self.random.randrange(256)

    def remove(self, data: bytearray) -> None:
        start, end = self.span(data)
        del data[start:end]

    def repeat(self, data: bytearray) -> None:
        start, end = self.span(data)
        data[start:start] = data[start:end] * self.random.choice((1, 1, 2, 16))

    def splice(self, data: bytearray) -> None:
        other = self.random.choice(self.inputs)
        start, end = self.span(other)
        to, rest = self.span(data)
        data[to:rest] = other[start:end]

    def insert(self, data: bytearray) -> None:
        start, end = self.span(data)
        data[start : self.random.choice((start, end))] = self.random.choice(self.words)


_CHANGES: Final = (
    Mutator.flip,
    Mutator.replace,
    Mutator.remove,
    Mutator.repeat,
    Mutator.splice,
    Mutator.insert,
    Mutator.insert,
)
