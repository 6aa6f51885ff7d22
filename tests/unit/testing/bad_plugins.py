# SPDX-License-Identifier: Apache-2.0
"""Plugins that each break the contract in one way, as test classes that other processes import by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

from validator.plugin.api import Context, Handler, Manifest, MessageWeight, hookimpl
from validator.testing import HandlerContract

SEEN: list[bool] = []
"""State that `Remembering` keeps in this module; tests clear it."""


def plugin(*handlers: Handler | Callable[[], Handler], config_type: type[Any] | None = None) -> Any:
    """Return a plugin that yields these handlers, or the results of these functions."""

    @hookimpl
    def validator_manifest() -> Manifest:
        return Manifest("bad", "1.0.0", (2, 0), config_type)

    @hookimpl
    def validator_handlers() -> list[Handler]:
        return [each() if callable(each) else each for each in handlers]

    return SimpleNamespace(validator_manifest=validator_manifest, validator_handlers=validator_handlers)


def handler(handle: Callable[[Context, Any], None], kind: str = "bad", prefix: bytes = b"\x01") -> Handler:
    return Handler(kind, handle, MessageWeight(10), prefix=prefix)


def emit(context: Context, payload: bytes) -> None:
    context.emit("got", payload)


class Bad(HandlerContract):
    """The parts that they share."""

    examples: ClassVar = (b"\x01hello",)


class Sound(Bad):
    plugin: ClassVar = plugin(handler(emit))
    breaks: ClassVar = ()


def refuse(context: Context, payload: bytes) -> None:
    raise ValueError("no")


class Refusing(Bad):
    plugin: ClassVar = plugin(handler(refuse))
    breaks: ClassVar = {"accepts_its_examples": "expected ok, found failed (ValueError: no)"}


class NobodysExample(Bad):
    examples: ClassVar = (b"\x01hello", b"\x09hello")
    plugin: ClassVar = plugin(handler(emit))
    breaks: ClassVar = {"accepts_its_examples": "expected ok, found no_handler"}


class Hiding(Bad):
    plugin: ClassVar = plugin(handler(emit), handler(emit, "other", b"\x02"))
    breaks: ClassVar = {"shows_every_kind": "no example is of kind other"}


def remember(context: Context, payload: bytes) -> None:
    context.emit("seen", b"yes" if SEEN else b"not")
    SEEN.append(True)


class Remembering(Bad):
    plugin: ClassVar = plugin(handler(remember))
    breaks: ClassVar = {"is_the_same_twice": "a second run in the same process has a different dispatch"}


def shuffle(context: Context, payload: bytes) -> None:
    context.emit("set", "".join({"a", "b", "c", "d", "e", "f", "g", "h"}).encode())


class Shuffling(Bad):
    plugin: ClassVar = plugin(handler(shuffle))
    breaks: ClassVar = {
        "is_the_same_under_every_hash_seed": "PYTHONHASHSEED=1, compared with 0, has a different dispatch"
    }


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def handle(self, context: Context, payload: bytes) -> None:
        self.count += 1
        context.emit("count", bytes([self.count]))


class Counting(Bad):
    plugin: ClassVar = plugin(lambda: handler(Counter().handle))
    breaks: ClassVar = {"survives_a_restart": "sent again after a restart, it has a different dispatch"}


def swallow(context: Context, payload: bytes) -> None:
    try:
        context.write(b"key", payload)
    except Exception:  # noqa: BLE001  # the defect under test
        context.emit("swallowed")


class Swallowing(Bad):
    plugin: ClassVar = plugin(handler(swallow))
    breaks: ClassVar = {"leaves_nothing_of_a_failed_message": "a fault at call 1 (write): expected a failed message"}  # fmt: skip


def reach(context: Context, payload: bytes) -> None:
    context._host._state.accounts[context.origin].free -= 1  # type: ignore[attr-defined]
    context._host._state.touched.pages[context.origin] = None  # type: ignore[attr-defined]
    context.emit("taken")


class Reaching(Bad):
    plugin: ClassVar = plugin(handler(reach))
    breaks: ClassVar = {
        "leaves_nothing_of_a_failed_message": "a fault at call 1 (emit): balances changed",
        "is_bounded_by_weight": "balances changed",
    }


def adapt(context: Context, payload: bytes) -> None:
    if context.weight_left >= 1_000:
        context.charge(1_000)


class Adapting(Bad):
    plugin: ClassVar = plugin(handler(adapt))
    breaks: ClassVar = {
        "is_bounded_by_weight": "which uses a weight of 1010, with 10: expected out_of_weight, found ok"
    }


def nothing(context: Context, payload: bytes) -> None:
    pass


class Weightless(Bad):
    plugin: ClassVar = plugin(Handler("bad", nothing, MessageWeight(0), prefix=b"\x01"))
    breaks: ClassVar = {"is_bounded_by_weight": "expected a weight of at least 1, found 0"}


def decode(payload: bytes) -> bytes | None:
    if len(payload) > 100:
        raise ValueError("too long for me")
    return payload


class Choking(Bad):
    plugin: ClassVar = plugin(Handler("bad", emit, MessageWeight(10), decode=decode, payload_bytes_max=200))
    breaks: ClassVar = {"refuses_oversize_payloads": "padded to 201 bytes: expected OversizePayload, found failed (ValueError"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Incomparable:
    bytes_max: int = 1


class Misconfigured(Bad):
    plugin: ClassVar = plugin(handler(emit), config_type=Incomparable)
    breaks: ClassVar = {"has_a_configuration_that_survives_json": 'is written as {"bytes_max":1}, which is read as'}


@dataclass(frozen=True)
class Listed:
    seen: list[str] = field(default_factory=list)


def reconfigure(context: Context, payload: bytes) -> None:
    context.config.seen.append("x")


class Reconfiguring(Bad):
    plugin: ClassVar = plugin(handler(reconfigure), config_type=Listed)
    breaks: ClassVar = {
        "has_a_configuration_that_survives_json": 'the handler changes its configuration from {"seen":[]} to {"seen":["x"]}'
    }
