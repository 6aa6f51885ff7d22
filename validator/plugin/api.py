# SPDX-License-Identifier: Apache-2.0
"""The public API for handlers and transports: they import nothing else from validator.

A plugin is a module (or object) behind an entry point of one of three groups: ``validator.protocols``, ``validator.handlers``,
``validator.transports``. It implements the hooks of its group (`validator.plugin.hookspecs`) with `hookimpl`. Protocols also import
`validator.plugin.protocol_api` and `validator.protocols.kit`, and their simulations import `validator.simulate`. Within a major version of
the API, names are added but never removed or changed in meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
"""Major and minor. A plugin runs if its major version equals this one and its minor version is not greater."""

VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*([a-z0-9.+-]*)")
"""The form of a plugin's version, which is the version of its distribution (PEP 440)."""

hookimpl: Final = pluggy.HookimplMarker("validator")
"""Marks a function as the implementation of the hook with the same name."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The identity of a plugin.

    ``name`` is the name of its entry point up to an ``@``; text after the ``@`` allows two versions side by side. Verdicts can be traced
    to ``version``. ``api_version`` is the `API_VERSION` that the plugin was written for. ``config_type`` is the frozen dataclass of its
    configuration, or None. Raises ``ValueError`` for a bad name, version, API version or configuration class, in this order.
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
    """A transport's connection to Kafka, in the transport's own process.

    ``config`` is the transport's configuration. Input records go to Kafka and output records come from it, in the encodings of `avro/`;
    `encode` and `decode` convert them from and to their JSON form, in which people write and read them (docs/commands.md).
    """

    config: Any

    def encode(self, topic: str, record: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return key and value, for `submit`, of an input record given in JSON form.

        The record belongs to the protocol that the configuration gives its lane. Raises ``ValueError`` that says what was expected and
        found: a topic that is not an input, a record without a lane, then its first wrong field.
        """

    def decode(self, topic: str, value: bytes) -> dict[str, Any]:
        """Return a record of an input or output topic in JSON form. Raises ``ValueError`` for an unknown topic, then for a wrong value."""

    def submit(self, topic: str, key: bytes, value: bytes) -> None:
        """Write a record to an input topic, named without its prefix. Returns once Kafka has the record. Raises `ValueError`."""

    def receive(self, timeout_s: float) -> Record | None:
        """Return the next committed record of the output topics, or None if none arrives in time."""

    def acknowledge(self) -> None:
        """Commit everything received so far as delivered: it is not received again after a restart."""

    @property
    def stopping(self) -> bool:
        """Whether the transport should stop."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A route into and out of the system besides plain Kafka.

    ``run`` works until `TransportContext.stopping`. ``topics`` are the output topics to receive, without their prefix.
    """

    name: str
    run: Callable[[TransportContext], None]
    topics: tuple[str, ...] = ()
