# SPDX-License-Identifier: Apache-2.0
"""Chooses the handler of a message, runs it and returns the outcome."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, TypeAlias

from validator.core.handlers.context import Context, Host
from validator.core.handlers.errors import HandlerFault, HandlerInterrupted, OutOfWeight
from validator.core.handlers.handler import BoundHandler
from validator.core.handlers.upward import FixedWeightDispatcher
from validator.core.limits import HANDLER_FAILURE_CHARACTERS_MAX
from validator.core.outcomes import DispatchOutcome, Processed
from validator.core.types import BlockNumber, ParaId, Weight

Guard: TypeAlias = Callable[[BoundHandler, BlockNumber, ParaId | None], AbstractContextManager[object]]
"""Watches one call of a handler, and ends it by raising `HandlerInterrupted` inside it. It gets the block, and the para if it is known."""


def unguarded(*_call: object) -> AbstractContextManager[object]:
    """Watch nothing."""
    return nullcontext()


_EXHAUSTED = (MemoryError, RecursionError, SystemError)
"""What depends on how much memory or stack the process has left, or on the state of its interpreter: never a verdict."""

_NO_THREAD = ("can't start new thread", "can't create new thread at interpreter shutdown")
"""Texts of the `RuntimeError` of an interpreter that the system gives no thread."""

_CAUSES_MAX = 64
"""Exceptions behind a failure that are looked at."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The memory address in an object's default text."""


class DispatchTable:
    """The owners of message kinds; immutable.

    Prefixes come first: none is a prefix of another, so at most one matches. Then each handler without a prefix is asked, in the order of
    plugin and kind. Raises `ValueError` naming every conflict: two handlers of one kind, or two prefixes for one payload.
    """

    def __init__(self, handlers: Iterable[BoundHandler]) -> None:
        self.handlers = tuple(sorted(handlers, key=lambda bound: (bound.plugin, bound.handler.kind)))
        if conflicts := find_conflicts(self.handlers):
            raise ValueError("; ".join(conflicts))
        prefixed = [bound for bound in self.handlers if bound.handler.prefix]
        self._lengths = sorted({len(bound.handler.prefix) for bound in prefixed})
        self._by_prefix = {bound.handler.prefix: bound for bound in prefixed}
        self._deciding = [bound for bound in self.handlers if not bound.handler.prefix]

    def by_prefix(self, payload: bytes) -> BoundHandler | None:
        """Return the handler that owns the payload's leading bytes, if any."""
        for length in self._lengths:
            bound = self._by_prefix.get(payload[:length])
            if bound is not None:
                return bound
        return None

    @property
    def deciding(self) -> Sequence[BoundHandler]:
        """The handlers that must see a whole payload to know whether it is theirs."""
        return self._deciding


def find_conflicts(handlers: Sequence[BoundHandler]) -> list[str]:
    """Return a line for every pair of handlers that claim the same messages."""
    conflicts = []
    for at, one in enumerate(handlers):
        for other in handlers[at + 1 :]:
            if one.handler.kind == other.handler.kind:
                conflicts.append(f"kind {one.handler.kind!r} has two owners, {one.name} and {other.name}")
            elif _overlap(one.handler.prefix, other.handler.prefix):
                conflicts.append(
                    f"payloads that start with {max(one.handler.prefix, other.handler.prefix, key=len).hex()} have two owners, "
                    f"{one.name} ({one.handler.kind}) and {other.name} ({other.handler.kind})"
                )
    return conflicts


def _overlap(one: bytes, other: bytes) -> bool:
    return bool(one and other) and (one.startswith(other) or other.startswith(one))


@dataclass(frozen=True, slots=True)
class HandlerEpoch:
    """The handlers in force from a block until the next epoch begins."""

    from_block: BlockNumber
    table: DispatchTable


class HandlerDispatcher:
    """Dispatches upward messages to handlers; the block alone decides which ones are in force.

    ``epochs`` are ascending by block, the first from block 0. A message may use ``weight_max``, or the weight of a whole round if that is
    None. A message that no handler takes is left to ``weights``, if there are any, else it is charged ``default_weight``. ``context`` makes
    each message's context.
    """

    def __init__(
        self,
        epochs: Sequence[HandlerEpoch],
        *,
        default_weight: Weight = 1,
        weights: FixedWeightDispatcher | None = None,
        weight_max: Weight | None = None,
        guard: Guard = unguarded,
        context: Callable[..., Context] = Context,
    ) -> None:
        self._starts = [epoch.from_block for epoch in epochs]
        self._tables = [epoch.table for epoch in epochs]
        self._default_weight = default_weight
        self._weights = weights
        self._weight_max = weight_max
        self._guard = guard
        self._context = context

    def process(self, host: Host, para: ParaId, payload: bytes, limit: Weight | None = None) -> Processed:
        """Dispatch one message. Raises `HandlerFault` if the handler's result depends on more than its arguments."""
        table = self._table(host)
        step_weight = host.host_configuration.preferred_dispatchable_upward_messages_step_weight
        limits = [each for each in (limit, self._weight_max) if each is not None]
        limit = min(limits, default=step_weight)
        bound = table.by_prefix(payload)
        if bound is not None:
            return self._run(bound, host, para, payload, limit)
        for bound in table.deciding:
            processed = self._run(bound, host, para, payload, limit)
            if processed.outcome is not DispatchOutcome.NO_HANDLER:
                return processed
        if self._weights is not None:
            return self._weights.process(host, para, payload, limit)
        return Processed(self._default_weight, DispatchOutcome.NO_HANDLER)

    def weigh(self, host: Host, payload: bytes) -> Weight:
        """Return the weight that the message's handler charges before it runs, or the default. Raises `HandlerFault`.

        A handler that fails to decode the message owns it: handing the message over will report the failure.
        """
        table = self._table(host)
        bound = table.by_prefix(payload)
        if bound is None:
            bound = next((bound for bound in table.deciding if self._recognises(bound, host, payload)), None)
        if bound is not None:
            return bound.handler.weight.of(payload)
        return self._default_weight if self._weights is None else self._weights.weigh(host, payload)

    def _table(self, host: Host) -> DispatchTable:
        return self._tables[bisect_right(self._starts, host.block) - 1]

    def _recognises(self, bound: BoundHandler, host: Host, payload: bytes) -> bool:
        """Return whether a handler's ``decode`` takes a payload for its own."""
        decode = bound.handler.decode
        assert decode is not None
        try:
            with self._guard(bound, host.block, None):
                return decode(payload) is not None
        except HandlerInterrupted as interruption:
            raise HandlerFault(bound.name, bound.handler.kind, str(interruption)) from None
        except Exception as error:
            if cause := machine_cause(error):
                raise HandlerFault(bound.name, bound.handler.kind, _no_verdict(cause, error)) from error
            return True
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit and the like would end the process
            raise HandlerFault(bound.name, bound.handler.kind, _raised(error)) from error

    def _run(self, bound: BoundHandler, host: Host, para: ParaId, payload: bytes, limit: Weight) -> Processed:
        handler = bound.handler
        weight = handler.weight.of(payload)
        if handler.prefix and (refused := _refuse(bound, payload, weight, limit)):
            return refused
        context = self._context(host, para, bound.plugin, bound.config, used=min(weight, limit), limit=limit)
        failure: str | None = None
        host.begin()
        try:
            with self._guard(bound, host.block, para):
                try:
                    message = payload if handler.decode is None else handler.decode(payload)
                    if message is None and not handler.prefix:
                        return Processed(self._default_weight, DispatchOutcome.NO_HANDLER)
                    if not handler.prefix and (refused := _refuse(bound, payload, weight, limit)):
                        return refused
                    returned: object = handler.handle(context, message)  # type: ignore[func-returns-value]  # plugins may
                    if returned is not None:
                        failure = f"TypeError: expected a handler that returns None, found {type(returned).__name__}"
                except _EXHAUSTED:
                    raise
                except Exception as error:  # the round continues whatever a handler raises
                    if cause := machine_cause(error):
                        raise HandlerFault(bound.name, handler.kind, _no_verdict(cause, error), para) from error
                    failure = describe(error)  # an exception's text comes from the plugin, too
        except OutOfWeight:
            context._exhausted = True
        except HandlerFault:
            raise
        except _EXHAUSTED as error:
            # how much of either is left depends on the process
            raise HandlerFault(bound.name, handler.kind, _no_verdict(error, error), para) from error
        except HandlerInterrupted as interruption:
            raise HandlerFault(bound.name, handler.kind, str(interruption), para) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit and the like would end the process
            raise HandlerFault(bound.name, handler.kind, _raised(error), para) from error
        if context._exhausted:
            host.roll_back()
            return Processed(limit, DispatchOutcome.OUT_OF_WEIGHT, None, bound.name, handler.kind)
        if failure is not None:
            host.roll_back()
            return Processed(context._used, DispatchOutcome.FAILED, failure, bound.name, handler.kind)
        events = tuple(context._events)
        return Processed(context._used, DispatchOutcome.OK, None, bound.name, handler.kind, events, host.queued())


def _refuse(bound: BoundHandler, payload: bytes, weight: Weight, limit: Weight) -> Processed | None:
    handler = bound.handler
    if len(payload) > handler.payload_bytes_max:
        failure = f"OversizePayload: expected at most {handler.payload_bytes_max} bytes, found {len(payload)}"
        return Processed(min(weight, limit), DispatchOutcome.FAILED, failure, bound.name, handler.kind)
    if weight > limit:
        return Processed(limit, DispatchOutcome.OUT_OF_WEIGHT, None, bound.name, handler.kind)
    return None


def machine_cause(error: BaseException) -> BaseException | None:
    """Return what says that the machine has refused something, if a handler failed so: the error, what is behind it, or one of a group.

    That is exhaustion, a thread that the system did not give, and an `OSError` with an error number, as the system gives it: an `OSError`
    that a handler makes up has none. A handler's own classes are not asked.
    """
    left = [error]
    for _ in range(_CAUSES_MAX):
        if not left:
            break
        each = left.pop(0)
        kind = type(each)
        arguments = _own(BaseException, "args", each)
        if (
            issubclass(kind, _EXHAUSTED)
            or (issubclass(kind, OSError) and _own(OSError, "errno", each) is not None)
            or (issubclass(kind, RuntimeError) and any(type(said) is str and said in _NO_THREAD for said in arguments))
        ):
            return each
        behind = [_own(BaseException, name, each) for name in ("__cause__", "__context__")]
        if issubclass(kind, BaseExceptionGroup):
            behind += _own(BaseExceptionGroup, "exceptions", each)
        left += [found for found in behind if found is not None]
    return None


def line_in_plugin(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return where a handler was, as text to append: of frames, outermost first, the last line in the package of the plugin's first one.

    Empty if no frame is a plugin's. A plugin's own objects are not asked.
    """
    package, line = None, ""
    for frame, number in frames:
        name = dict.get(frame.f_globals, "__name__")
        top = name.partition(".")[0] if type(name) is str else ""
        if name == __name__:
            package, line = None, ""  # the plugin comes after it
        elif top != "validator" and (package is None or top == package):
            package, line = top, f", at {'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{number}"
    return line


def frames_of(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a traceback, outermost first, with their lines."""
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _no_verdict(cause: BaseException, error: BaseException) -> str:
    """Return, in words, why a handler's ``error`` is no verdict: what the machine has refused, and where."""
    line = line_in_plugin(frames_of(cause.__traceback__)) or line_in_plugin(frames_of(error.__traceback__))
    return f"{type(cause).__name__} is not a verdict{_said(cause)}{line}"


def _raised(error: BaseException) -> str:
    return f"{type(error).__name__} raised{line_in_plugin(frames_of(error.__traceback__))}"


def _said(error: BaseException) -> str:
    """Return what an exception was made with, as text to append: a plugin's own classes are not asked, outside of the guard."""
    if issubclass(type(error), OSError):
        said = [_own(OSError, name, error) for name in ("strerror", "filename")]
    else:
        said = list(_own(BaseException, "args", error))
    texts = [each for each in said if type(each) is str]
    text = ": ".join(texts).encode("utf-8", "backslashreplace").decode()[:HANDLER_FAILURE_CHARACTERS_MAX]
    return f": {text}" if text else ""


def _own(kind: type, name: str, error: BaseException) -> Any:
    """Return an attribute as a built-in class has it, whatever a class derived from it says."""
    return kind.__dict__[name].__get__(error)


def describe(error: Exception) -> str:
    """Return an exception's type and text, truncated, and the same in every process: without addresses, and encodable."""
    try:
        text = str(error)
    except _EXHAUSTED:
        raise
    except Exception as broken:  # noqa: BLE001  # a plugin's own exception class may be broken, too
        text = f"({type(broken).__name__} in its text)"
    text = _ADDRESS.sub("", f"{type(error).__name__}: {text}").encode("utf-8", "backslashreplace").decode()
    return text[:HANDLER_FAILURE_CHARACTERS_MAX]
