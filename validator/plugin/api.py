# SPDX-License-Identifier: Apache-2.0
"""Everything that handlers and transports may import from validator, and all that they may rely on.

A plugin is a module (or object) behind an entry point of one of three groups: ``validator.protocols``, ``validator.handlers``,
``validator.transports``. It implements the hooks of its group (`validator.plugin.hookspecs`) with `hookimpl`. Authors of protocols find the
rest in `validator.plugin.protocol_api`, `validator.protocols.kit` and `validator.simulate`. Within a major version of the API names are
added, never removed or changed in meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Protocol, TypeAlias

import pluggy

from validator.core.errors import Violation
from validator.core.handlers.context import Context
from validator.core.handlers.errors import ContextError
from validator.core.handlers.handler import KIND, Handler, MessageWeight
from validator.core.handlers.weights import CALL_WEIGHTS, CallWeights
from validator.core.scale import DecodeError, Reader, Writer
from validator.core.types import Balance, BlockNumber, ParaId, SessionIndex, Weight

__all__ = [
    "API_VERSION",
    "CALL_WEIGHTS",
    "Balance",
    "BlockNumber",
    "CallWeights",
    "Context",
    "ContextError",
    "DecodeError",
    "Handler",
    "Manifest",
    "MessageWeight",
    "ParaId",
    "Reader",
    "SessionIndex",
    "Transport",
    "TransportContext",
    "Violation",
    "Weight",
    "Writer",
    "hookimpl",
]

API_VERSION: Final = (1, 0)
"""Major and minor: a plugin runs where the major is the one it was written for and the minor is no smaller."""

VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*([a-z0-9.+-]*)")
"""What a plugin's version looks like: that of its distribution (PEP 440)."""

hookimpl: Final = pluggy.HookimplMarker("validator")
"""Marks a function as the implementation of the hook of the same name."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Who a plugin is.

    ``name`` is that of its entry point, up to an ``@`` (which lets two versions stand side by side), ``version`` what verdicts are
    traced to, ``api_version`` the `API_VERSION` that it was written for, ``config_type`` the frozen dataclass of its configuration: None
    where it has none. Raises ``ValueError`` for a bad name, version, API version or configuration class, in this order.
    """

    name: str
    version: str
    api_version: tuple[int, int]
    config_type: type[Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not KIND.fullmatch(self.name):
            raise ValueError(f"manifest name: expected 1 to 64 of a-z 0-9 . _ -, found {self.name!r}")
        if not isinstance(self.version, str) or not VERSION.fullmatch(self.version):
            raise ValueError(f"manifest version: expected a version such as 1.0.0, found {self.version!r}")
        numbers = self.api_version
        if not (isinstance(numbers, tuple) and len(numbers) == 2 and all(type(each) is int for each in numbers)):
            raise ValueError(f"manifest api_version: expected (major, minor), found {numbers!r}")
        kind = self.config_type
        if kind is not None and not (is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
            raise ValueError(f"manifest config_type: expected a frozen dataclass, found {kind!r}")

    def config_fields(self) -> tuple[str, ...]:
        """Return the names of the configuration's fields."""
        return () if self.config_type is None else tuple(field.name for field in fields(self.config_type))


Record: TypeAlias = tuple[str, bytes, bytes]
"""Topic without its prefix, key and value."""


class TransportContext(Protocol):
    """What a transport works with, in a process of its own.

    ``config`` is its configuration. Input records go to Kafka, output records come from it; both in the encodings of `avro/`.
    """

    config: Any

    def submit(self, topic: str, key: bytes, value: bytes) -> None:
        """Write a record to an input topic, by its name without the prefix; returns once Kafka has it. Raises `ValueError`."""

    def receive(self, timeout_s: float) -> Record | None:
        """Return the next record of an output topic, committed ones only, or None where none comes in time."""

    def acknowledge(self) -> None:
        """Remember that everything received so far has been delivered: it does not come again after a restart."""

    @property
    def stopping(self) -> bool:
        """Whether the transport is to end."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A way for records to come in and go out besides plain Kafka.

    ``run`` works until `TransportContext.stopping`; ``topics`` are the output topics that it wants to receive, without prefix.
    """

    name: str
    run: Callable[[TransportContext], None]
    topics: tuple[str, ...] = ()
