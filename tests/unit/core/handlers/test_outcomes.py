# SPDX-License-Identifier: Apache-2.0
"""Outcomes of messages for every behaviour of a handler, and faults that must never become verdicts."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.core.handlers.relay import LIMITS, bound, dispatcher, host_of, relay, run
from validator.core.handlers.context import Context
from validator.core.handlers.dispatch import describe
from validator.core.handlers.errors import ContextError, HandlerFault, HandlerInterrupted, OutOfWeight
from validator.core.handlers.handler import MessageWeight
from validator.core.limits import HANDLER_FAILURE_CHARACTERS_MAX, HANDLER_PAYLOAD_BYTES_MAX
from validator.core.outcomes import DispatchOutcome, HandlerEvent
from validator.plugin.watchdog import Watchdog
from validator.protocols.router.errors import OpenHrmpChannelToSelf
from validator.protocols.router.rules import ROUTER

ROUND = LIMITS.preferred_dispatchable_upward_messages_step_weight


def test_successful_handler_gives_ok_with_events() -> None:
    def handle(context: Context, message: bytes) -> None:
        context.emit("got", message)
        context.emit("done")

    processed = run(handle, b"message")
    events = (HandlerEvent("got", b"message"), HandlerEvent("done", b""))
    assert processed == (10 + 50 + 3 + 7 + 50 + 4, DispatchOutcome.OK, None, "test@1.0", "kind", events, ())


def test_handler_gets_decoded_message_chain_and_configuration() -> None:
    seen: list[Any] = []

    def handle(context: Context, message: Any) -> None:
        seen.append(
            (message, context.origin, context.block, context.session, context.host_configuration, context.config)
        )

    owner = bound("k", handle, b"m", lambda payload: payload.decode().upper(), config={"a": 1})
    assert dispatcher([owner]).process(host_of(relay()), 2, b"mm").outcome == "ok"
    assert seen == [("MM", 2, 7, 1, LIMITS, {"a": 1})]


def test_raising_handler_gives_failed_and_changes_nothing() -> None:
    def handle(context: Context, message: bytes) -> None:
        context.emit("got")
        context.write(b"k", b"v")
        raise LookupError("no such thing")

    router = relay()
    before = ROUTER.root_of(router.state)
    processed = run(handle, router=router)
    assert processed == (
        10 + 53 + 202,
        DispatchOutcome.FAILED,
        "LookupError: no such thing",
        "test@1.0",
        "kind",
        (),
        (),
    )
    assert ROUTER.root_of(router.state) == before


def test_violation_is_reported_by_kind() -> None:
    processed = run(lambda context, message: context.init_open_channel(1, 1, 1))
    assert processed.outcome == "failed"
    assert processed.failure == f"OpenHrmpChannelToSelf: {OpenHrmpChannelToSelf()}"


def test_caught_violation_changes_nothing_and_message_succeeds() -> None:
    router = relay()

    def handle(context: Context, message: bytes) -> None:
        with pytest.raises(OpenHrmpChannelToSelf):
            context.init_open_channel(1, 1, 1)
        context.emit("caught")

    before = ROUTER.root_of(router.state)
    assert run(handle, router=router).outcome == "ok"
    assert ROUTER.root_of(router.state) == before


def test_error_that_a_handler_makes_up_is_a_verdict() -> None:
    processed = run(raising(PermissionError("not yours")))
    assert (processed.outcome, processed.failure) == (DispatchOutcome.FAILED, "PermissionError: not yours")


def test_exception_in_decode_fails_message() -> None:
    owners = [bound("a", prefix=b"a", decode=bytes.decode), bound("b", decode=bytes.decode)]
    for payload, kind in ((b"a\xff", "a"), (b"\xff", "b")):
        processed = dispatcher(owners).process(host_of(relay()), 1, payload)
        assert (processed.outcome, processed.kind, processed.weight) == ("failed", kind, 10)
        assert (processed.failure or "").startswith("UnicodeDecodeError: ")


@pytest.mark.parametrize("returned", [False, 0, b"", (), object()])
def test_handler_that_returns_value_fails(returned: Any) -> None:
    processed = run(lambda context, message: returned)
    assert processed.outcome == "failed"
    assert processed.failure == f"TypeError: expected a handler that returns None, found {type(returned).__name__}"


def test_oversize_payload_fails_without_call() -> None:
    called: list[bytes] = []

    def decode(payload: bytes) -> bytes:
        called.append(payload)
        return payload

    for more, longest in (({}, HANDLER_PAYLOAD_BYTES_MAX), ({"payload_bytes_max": 3}, 3)):
        owner = bound("k", lambda context, message: None, b"m", decode, weight=MessageWeight(1, 1), **more)  # type: ignore[arg-type]
        assert dispatcher([owner]).process(host_of(relay()), 1, b"m" * longest).outcome == "ok"
        called.clear()
        processed = dispatcher([owner]).process(host_of(relay()), 1, b"m" * (longest + 1))
        assert processed.outcome == "failed"
        assert processed.failure == f"OversizePayload: expected at most {longest} bytes, found {longest + 1}"
        assert processed.weight == longest + 2
        assert called == []


def test_payload_too_long_for_one_decoder_may_go_to_another() -> None:
    handled: list[str] = []
    owners = [
        bound(
            kind,
            lambda context, message: handled.append(message),
            decode=lambda payload, takes=takes: payload if payload.startswith(takes) else None,
            payload_bytes_max=longest,
        )
        for kind, takes, longest in (("a", b"a", 1), ("b", b"b", 9))
    ]
    outcomes = [dispatcher(owners).process(host_of(relay()), 1, payload).outcome for payload in (b"aa", b"bb", b"a")]
    assert outcomes == ["failed", "ok", "ok"]
    assert handled == [b"bb", b"a"]


# --- weight ---


@pytest.mark.parametrize("decides", [False, True])
def test_message_over_weight_limit_is_out_of_weight_without_call(*, decides: bool) -> None:
    called: list[bytes] = []
    more: dict[str, Any] = {"decode": lambda payload: payload} if decides else {"prefix": b"m"}
    owner = bound("k", lambda context, message: called.append(message), weight=MessageWeight(101), **more)
    processed = dispatcher([owner], weight_max=100).process(host_of(relay()), 1, b"m")
    assert processed == (100, DispatchOutcome.OUT_OF_WEIGHT, None, "test@1.0", "k", (), ())
    assert dispatcher([owner], weight_max=101).process(host_of(relay()), 1, b"m").outcome == "ok"
    assert called == [b"m"]


def test_weight_limit_defaults_to_that_of_round() -> None:
    def handle(context: Context, message: bytes) -> None:
        assert context.weight_left == ROUND - 10
        context.charge(ROUND - 10)
        assert context.weight_left == 0
        context.charge(0)

    assert run(handle).weight == ROUND
    assert run(lambda context, message: context.charge(ROUND - 9)).outcome == "out_of_weight"
    assert run(lambda context, message: context.charge(90), weight_max=100).weight == 100
    assert run(lambda context, message: context.charge(91), weight_max=100).outcome == "out_of_weight"


def ignore_exhaustion(context: Context, message: bytes) -> None:
    """Continue after the weight has run out, in every possible way."""
    context.write(b"k", b"v")
    try:
        context.charge(ROUND)
    except BaseException:  # noqa: BLE001
        with pytest.raises(OutOfWeight):
            context.charge(0)
        with pytest.raises(OutOfWeight):
            context.read(b"k")
    if message == b"mraise":
        raise ValueError("something else")


@pytest.mark.parametrize("payload", [b"m", b"mraise"])
def test_handler_that_catches_out_of_weight_gains_nothing(payload: bytes) -> None:
    router = relay()
    before = ROUTER.root_of(router.state)
    processed = run(ignore_exhaustion, payload, router=router)
    assert processed == (ROUND, DispatchOutcome.OUT_OF_WEIGHT, None, "test@1.0", "kind", (), ())
    assert ROUTER.root_of(router.state) == before


def test_except_exception_does_not_catch_out_of_weight() -> None:
    def handle(context: Context, message: bytes) -> None:
        try:
            context.charge(ROUND)
        except Exception:  # noqa: BLE001
            raise AssertionError from None

    assert run(handle).outcome == "out_of_weight"


# --- failure texts ---


class Faceless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a\nb"), "ValueError: a\nb"),
        (ValueError(), "ValueError: "),
        (Faceless(), "Faceless: (ValueError in its text)"),
        (ValueError("x" * 1000), "ValueError: " + "x" * (HANDLER_FAILURE_CHARACTERS_MAX - 12)),
        (ValueError("\udc80\ud800"), "ValueError: \\udc80\\ud800"),
        (KeyError(object), "KeyError: <class 'object'>"),
    ],
)
def test_exception_is_described_by_type_and_text(error: Exception, text: str) -> None:
    assert describe(error) == text


def test_exception_text_is_same_in_every_process() -> None:
    """The default text of an object contains its address in memory."""
    several = [object(), object()]
    assert {describe(ValueError(f"{each} is odd")) for each in several} == {"ValueError: <object object> is odd"}
    failures = {run(lambda context, message, each=each: context.charge(each)).failure for each in several}  # type: ignore[misc]
    assert len(failures) == 1


# --- faults that must not become verdicts ---


def endless(depth: int = 0) -> int:
    return endless(depth + 1) + 1


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit


class Bottomless(Exception):
    def __str__(self) -> str:
        return str(endless())


class Hidden(OSError):
    """Says what it likes about itself."""

    __class__ = ValueError  # type: ignore[assignment]
    errno = None  # type: ignore[assignment]
    __cause__ = None
    args = ()


def behind(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def during(error: Exception, other: BaseException) -> Exception:
    error.__context__ = other
    return error


def raising(error: BaseException) -> Any:
    def handle(context: Context, message: bytes) -> None:
        raise error

    return handle


@pytest.mark.parametrize(
    ("handle", "text"),
    [
        (raising(MemoryError()), "MemoryError is not a verdict"),
        (lambda context, message: endless() and None, "RecursionError is not a verdict"),
        (raising(SystemError("error return without exception set")), "SystemError is not a verdict"),
        (raising(SystemExit(0)), "SystemExit raised"),
        (raising(GeneratorExit()), "GeneratorExit raised"),
        (raising(HandlerInterrupted("it took too long")), "it took too long"),
        (raising(Exiting()), "SystemExit raised"),
        (raising(Bottomless()), "RecursionError is not a verdict"),
        (raising(OSError(24, "Too many open files")), "OSError is not a verdict"),
        (raising(FileNotFoundError(2, "No such file or directory")), "FileNotFoundError is not a verdict"),
        (raising(RuntimeError("can't start new thread")), "RuntimeError is not a verdict"),
        (raising(behind(ValueError("no memory"), MemoryError())), "MemoryError is not a verdict"),
        (raising(during(ValueError("not read"), OSError(12, "Cannot allocate memory"))), "OSError is not a verdict"),
        (
            raising(ExceptionGroup("several", [ValueError(), ExceptionGroup("more", [MemoryError()])])),
            "MemoryError is not a verdict",
        ),
        (raising(Hidden(28, "No space left on device")), "Hidden is not a verdict"),
    ],
)
def test_machine_dependent_fault_stops_query(handle: Any, text: str) -> None:
    with pytest.raises(HandlerFault) as fault:
        run(handle)
    assert re.fullmatch(rf"handler test@1\.0 \(kind\): {text}(: \w.*)?(, at handlers/[\w.]+:\d+)?", str(fault.value))


def test_fault_names_the_plugins_line_and_what_was_refused(tmp_path: Path) -> None:
    missing = tmp_path / "rates.json"

    def reading(context: Context, message: bytes) -> None:
        json.load(missing.open())

    def wrapping(context: Context, message: bytes) -> None:
        try:
            reading(context, message)
        except OSError as error:
            raise ValueError("no rates") from error

    first = reading.__code__.co_firstlineno
    said = (
        f"handler test@1.0 (kind): FileNotFoundError is not a verdict: No such file or directory: {missing}, "
        f"at handlers/test_outcomes.py:{first + 1}"
    )
    for handle in (reading, wrapping):
        with pytest.raises(HandlerFault) as fault:
            run(handle)
        assert str(fault.value) == said


def test_plugins_own_exception_is_not_asked_for_its_text() -> None:
    class Own(OSError):
        def __str__(self) -> str:
            return str(forever(None, b""))  # type: ignore[arg-type,func-returns-value]

    with pytest.raises(
        HandlerFault, match=r"Own is not a verdict: No space left on device, at handlers/test_outcomes\.py:\d+$"
    ):
        run(raising(Own(28, "No space left on device")))


def test_keyboard_interrupt_propagates() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(raising(KeyboardInterrupt()))


def test_failing_guard_is_handler_fault() -> None:
    """Only errors of plugins become outcomes."""

    @contextmanager
    def broken(*_: object) -> Iterator[None]:
        raise ContextError("ours")
        yield

    with pytest.raises(HandlerFault, match="ContextError raised"):
        run(lambda context, message: None, guard=broken)


# --- the watchdog ---


def forever(context: Context, message: bytes) -> None:
    while True:
        pass


def stubborn(context: Context, message: bytes) -> None:
    with suppress(BaseException):
        forever(context, message)


def renaming(context: Context, message: bytes) -> None:
    try:
        forever(context, message)
    except BaseException:  # noqa: BLE001
        raise ValueError("too slow") from None


class Slow(Exception):
    def __str__(self) -> str:
        return str(forever(None, b""))  # type: ignore[arg-type,func-returns-value]


@pytest.mark.parametrize("handle", [forever, stubborn, renaming, raising(Slow())])
def test_endless_handler_stops_query_even_if_it_catches_interruption(handle: Any) -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(HandlerFault, match=r"it did not end within 0\.05 seconds, at handlers/test_outcomes\.py:\d+$"):
        run(handle, guard=Watchdog(0.05))
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_watchdog_ignores_handlers_that_end() -> None:
    guard = Watchdog(30)
    assert [run(lambda context, message: None, guard=guard).outcome for _ in range(3)] == ["ok"] * 3
    assert run(raising(ValueError()), guard=guard).outcome == "failed"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_watchdog_can_be_reused_after_interruption() -> None:
    guard = Watchdog(1.0)  # on a busy machine the second call may wait for a moment
    with pytest.raises(HandlerFault):
        run(forever, guard=guard)
    assert run(lambda context, message: None, guard=guard).outcome == "ok"


def test_watchdog_stops_timer_if_alarm_fires_early() -> None:
    """An alarm inside the watchdog's own code does not leave the timer running."""
    for _ in range(20):
        with pytest.raises(HandlerInterrupted), Watchdog(1e-6):
            time.sleep(1)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
