# SPDX-License-Identifier: Apache-2.0
"""The points of `validator plugins check` for a protocol: its contract on its suite of traces, and what other distributions check.

The contract comes from the source folder's tests, or without them it knows no error of the protocol. Each point is a test of
`ProtocolContract`, called without pytest. No point begins after `POINTS_SECONDS_MAX`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from time import monotonic
from traceback import extract_tb
from typing import Any, Final, TypeAlias

from validator.errors import PluginFailed, UserError, in_one_line
from validator.plugin.protocol_api import ProtocolDefinition
from validator.plugin.registry import Plugin, PluginError, protocols_of
from validator.replay.failures import described
from validator.testing.case import Broken, NotApplicable
from validator.testing.check_tests import test_classes
from validator.testing.protocol import ProtocolContract

POINTS_SECONDS_MAX: Final = 120
"""Seconds after which no further point of a plugin begins."""
CHECKS: Final = "validator.protocol_checks"
"""Entry points of this group are further points: functions of a protocol's name and the source folder or None."""
DETAIL_CHARACTERS_MAX: Final = 2_000

_OF_TESTS: Final = ("test_suite_covers_every_error_with_all_fields", "test_rules_page_has_every_error")
"""Tests that compare the protocol with the errors that the class of its project's tests lists."""
_LANE: Final = "test_lane_gives_expected_results"
_SUITE: Final = "suite of traces"
_REST: Final = "other tests of the project"

Point: TypeAlias = tuple[str, Callable[[], str | None]]


def protocol_points(plugin: Plugin, source: Path | None) -> Iterator[Point]:
    """Yield the points of each protocol of a plugin, each with a function that raises `Broken` or `NotApplicable`."""
    end = monotonic() + POINTS_SECONDS_MAX
    try:
        protocols = protocols_of(plugin)
    except PluginError:
        return  # the point of its records says so
    for protocol in protocols:
        ending = f" ({protocol.name})" if len(protocols) > 1 else ""
        for point, run in _points(protocol, source):
            yield point + ending, lambda run=run, name=protocol.name: _bounded(run, name, end)  # type: ignore[misc]


def _points(protocol: ProtocolDefinition, source: Path | None) -> Iterator[Point]:
    if protocol.traces.suite is None:
        yield _SUITE, _not_applicable("it ships none, so none of its rules has run here")
    else:
        yield from _contract_points(protocol, source)
    for entry in sorted(entry_points(group=CHECKS), key=lambda entry: entry.name):
        yield entry.name.replace("-", " "), lambda entry=entry: _offered(entry, protocol.name, source)  # type: ignore[misc]
    yield _REST, _not_applicable("not run: pytest runs them, and the whole contract of a simulation")


def _contract_points(protocol: ProtocolDefinition, source: Path | None) -> Iterator[Point]:
    found = [] if source is None else list(test_classes(source, ProtocolContract))
    own = [each for each in found if isinstance(each, type) and getattr(each, "protocol", None) == protocol.name]
    for contract in own:
        for name in _tests(ProtocolContract):
            yield f"{_words(name)} ({contract.__name__})", lambda name=name, of=contract: _call(of, name)  # type: ignore[misc]
    if own:
        return
    plain = type("Plain", (ProtocolContract,), {"protocol": protocol.name})
    for name in _tests(ProtocolContract):
        if name == _LANE:
            yield _words(name), lambda: _lane(plain)
        elif name not in _OF_TESTS:
            yield _words(name), lambda name=name: _call(plain, name)  # type: ignore[misc]
    reasons = [each for each in found if isinstance(each, str)]
    why = "; ".join(reasons) or "no test class that inherits validator.testing.ProtocolContract is available"
    yield "suite and rules page have every error", _not_applicable(why)


def _tests(contract: type) -> list[str]:
    """Return the names of a contract's tests in the order in which it defines them."""
    return [name for name in vars(contract) if name.startswith("test_")]


def _words(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")


def _call(contract: type[ProtocolContract], name: str) -> None:
    test = getattr(contract(), name)
    needed = [each.name for each in inspect.signature(test).parameters.values() if each.default is each.empty]
    if needed:
        raise NotApplicable(f"the project's own test needs pytest's {', '.join(needed)}")
    test()


def _lane(contract: type[ProtocolContract]) -> None:
    try:
        _call(contract, _LANE)
    except UserError as error:
        raise NotApplicable(
            f"only the project's tests know how an entry of a trace is written as a record: {error}"
        ) from None


def _offered(entry: EntryPoint, protocol: str, source: Path | None) -> str | None:
    try:
        check = entry.load()
    except (Exception, SystemExit) as error:  # the module may be anybody's and raise anything
        raise NotApplicable(f"importing {entry.value} failed: {in_one_line(error)}") from error
    return check(protocol, source)  # type: ignore[no-any-return]


def _bounded(run: Callable[[], str | None], protocol: str, end: float) -> str | None:
    """Run a point if there is time left; turn what it raises into `Broken` with a text that says where."""
    if monotonic() > end:
        raise NotApplicable(f"not run: the points before it took {POINTS_SECONDS_MAX} s")
    try:
        return run()
    except (Broken, NotApplicable):
        raise
    except AssertionError as error:
        raise Broken(_cut(str(error) or _statement(error))) from None
    except (PluginFailed, UserError) as error:
        raise Broken(_cut(str(error))) from None
    except Exception as error:  # noqa: BLE001  # a plugin may raise anything
        raise Broken(_cut(described(protocol, error))) from None
    except BaseException as error:
        if (reason := _skip_reason(error)) is None:
            raise
        raise NotApplicable(reason) from None


def _statement(error: AssertionError) -> str:
    """Return the condition of an assertion without a text."""
    last = extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}: {last.line}"


def _skip_reason(error: BaseException) -> str | None:
    """Return the reason of pytest's exception for a skipped test; tests may import pytest, this module does not need it."""
    skip: Any = getattr(sys.modules.get("pytest"), "skip", None)
    return str(error) if skip is not None and isinstance(error, skip.Exception) else None


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL_CHARACTERS_MAX else text[: DETAIL_CHARACTERS_MAX - 4] + " ..."


def _not_applicable(reason: str) -> Callable[[], str | None]:
    def run() -> str | None:
        raise NotApplicable(reason)

    return run
