# SPDX-License-Identifier: Apache-2.0
"""An upward-message handler, as a plugin describes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from validator.core.limits import (
    HANDLER_PAYLOAD_BYTES_MAX,
    HANDLER_PREFIX_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    U64_MAX,
)
from validator.core.types import Weight

if TYPE_CHECKING:
    from validator.core.handlers.context import Context

KIND: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
"""Names of message kinds and of plugins."""


@dataclass(frozen=True, slots=True)
class MessageWeight:
    """Weight charged for a message before its handler runs: ``base``, and ``per_byte`` for each byte of its payload."""

    base: Weight
    per_byte: Weight = 0

    def __post_init__(self) -> None:
        for name in ("base", "per_byte"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= U64_MAX // PAYLOAD_BYTES_MAX:
                raise ValueError(
                    f"weight.{name}: expected an integer from 0 to {U64_MAX // PAYLOAD_BYTES_MAX}, found {value!r}"
                )

    def of(self, payload: bytes) -> Weight:
        """Return the weight of a message."""
        return self.base + self.per_byte * len(payload)


@dataclass(frozen=True, slots=True)
class Handler:
    """Handles upward messages of one kind.

    With a ``prefix`` it owns every payload that starts with it. Without one it owns every payload that no prefix owns and that ``decode``
    recognises. ``decode`` gets the whole payload and returns None if it is not of this kind. ``handle`` gets a `Context` and what
    ``decode`` returned, or the payload itself if there is no ``decode``. It returns None or raises; if it raises, the message has failed
    and all its effects are undone. Both are functions of their arguments alone. Payloads longer than ``payload_bytes_max`` fail without a
    call.

    Raises, in this order: ``ValueError`` for a bad kind; ``TypeError`` for a ``handle``, ``weight`` or ``decode`` of the wrong type;
    ``ValueError`` for a bad prefix, for neither prefix nor ``decode``, and for a bad ``payload_bytes_max``.
    """

    kind: str
    handle: Callable[[Context, Any], None]
    weight: MessageWeight
    prefix: bytes = b""
    decode: Callable[[bytes], Any] | None = None
    payload_bytes_max: int = HANDLER_PAYLOAD_BYTES_MAX

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not KIND.fullmatch(self.kind):
            raise ValueError(
                f"kind: expected 1 to 64 of a-z 0-9 . _ - with a letter or digit at both ends, found {self.kind!r}"
            )
        if not callable(self.handle):
            raise TypeError(f"{self.kind}.handle: expected a function (context, message), found {self.handle!r}")
        if not isinstance(self.weight, MessageWeight):
            raise TypeError(f"{self.kind}.weight: expected a MessageWeight, found {self.weight!r}")
        if self.decode is not None and not callable(self.decode):
            raise TypeError(f"{self.kind}.decode: expected a function (payload), found {self.decode!r}")
        if type(self.prefix) is not bytes or len(self.prefix) > HANDLER_PREFIX_BYTES_MAX:
            raise ValueError(
                f"{self.kind}.prefix: expected at most {HANDLER_PREFIX_BYTES_MAX} bytes, found {self.prefix!r}"
            )
        if not self.prefix and self.decode is None:
            raise ValueError(f"{self.kind}: expected a prefix or a decode function, found neither")
        if type(self.payload_bytes_max) is not int or not 0 < self.payload_bytes_max <= PAYLOAD_BYTES_MAX:
            raise ValueError(
                f"{self.kind}.payload_bytes_max: expected 1 to {PAYLOAD_BYTES_MAX} bytes, found {self.payload_bytes_max!r}"
            )


@dataclass(frozen=True, slots=True)
class BoundHandler:
    """A handler with its plugin and the configuration that a chain gives that plugin."""

    plugin: str
    version: str
    handler: Handler
    config: Any = None

    @property
    def name(self) -> str:
        """Return plugin and version as dispatches record them: ``name@version``."""
        return f"{self.plugin}@{self.version}"
