# SPDX-License-Identifier: Apache-2.0
"""The points of `validator.testing.check`, run in the process that loads a distribution's plugins."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from time import monotonic
from traceback import extract_tb
from typing import Any, Final, TypeAlias, TypeVar

from packaging.utils import canonicalize_name

from validator.codec.codec import Codec
from validator.config.chain import Chain
from validator.core.handlers.dispatch import find_conflicts
from validator.errors import PluginFailed, UserError, in_one_line
from validator.plugin.protocol_api import LIMITS, ProtocolDefinition
from validator.plugin.registry import (
    Found,
    Plugin,
    PluginError,
    configure,
    discover,
    handlers_of,
    load,
    protocols_of,
    transports_of,
)
from validator.plugin.rule_pages import parse_page
from validator.replay.scenario import described
from validator.testing import points
from validator.testing.case import Broken, Case, NotApplicable, run_python
from validator.testing.check import Outcome, Result, limit_this_process
from validator.testing.contract import HandlerContract
from validator.testing.lint import lint_module
from validator.testing.protocol import ProtocolContract

T = TypeVar("T")


def test_classes(source: Path, base: type[T]) -> Iterator[type[T] | str]:
    """Yield the classes of ``tests/test_*.py`` that inherit from a contract, and descriptions of files that cannot be imported."""
    tests = source / "tests"
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    for file in sorted(tests.glob("test_*.py")):
        if base.__name__ not in file.read_text(encoding="utf-8", errors="replace"):
            continue
        try:
            module = _import(file)
        except Exception as error:  # noqa: BLE001  # tests may need packages that are not installed
            yield f"tests/{file.name} cannot be imported ({type(error).__name__}: {error})"
            continue
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, base) and each.__module__ == module.__name__:
                yield each


def _import(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"validator_check_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


POINTS_SECONDS_MAX: Final = 120
"""Seconds after which no further point of a plugin begins."""
CHECKS: Final = "validator.protocol_checks"
"""Entry points of this group are further points: functions of a protocol's name and the source folder or None."""
DETAIL_CHARACTERS_MAX: Final = 2_000

_OF_TESTS: Final = (
    "test_violations_names_every_error_of_the_package",
    "test_suite_covers_every_error_with_all_fields",
    "test_rules_page_has_every_error",
)
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


IMPORT_MS_MAX: Final = 1_000
"""Milliseconds of CPU time that importing a plugin's module may take in the best of several runs, with the API already imported."""

EXAMPLE_POINTS: Final = tuple(
    name
    for name in points.__all__
    if name not in ("snapshot", "works_from_an_archive", "is_clean", "has_a_configuration_that_survives_json")
)
"""Points of the contract that need the plugin's contract tests; the others are always checked."""

_SHOW = """\
import json, sys, time
import validator.plugin.api
from importlib import import_module
from validator.testing.check_points import show
start = time.process_time()
import_module(sys.argv[1])
took = time.process_time() - start
print("\\n" + json.dumps([took * 1000, show(*sys.argv[2:])]))
"""

_CHAIN_KEYS: Final = frozenset(Chain.model_fields) - {LIMITS}


def check_plugin(found: Found, source: Path | None, progress: Callable[[str], None], only: str) -> Iterator[Result]:
    """Yield a result for every point of a plugin, or only for the point ``only``."""
    progress(f"{found.entry_name}: loads")
    try:
        plugin = load(found)
    except PluginError as error:
        yield Result(found.entry_name, "loads", Outcome.FAILED, str(error))
        return
    name = f"{plugin.manifest.name}@{plugin.manifest.version}"
    yield Result(name, "loads", Outcome.OK, plugin.found.file)
    if only == "loads":
        return
    cases = [] if source is None else list(_cases(plugin, source))
    case = next((each for each in cases if isinstance(each, Case)), None)
    values = json.dumps(dict(case.config)) if case else "{}"
    checks: dict[str, Callable[[], str | None]] = {
        "its configuration survives json": lambda: _configuration(plugin, case, values),
        "yields its records": lambda: _records(plugin, values),
        "imports and yields the same under every hash seed": lambda: _same_elsewhere(plugin, values),
        "its source is clean": lambda: _lint(plugin),
    }
    for point, run in checks.items():
        progress(f"{name}: {point}")
        yield _result(name, point, run)
    if plugin.found.group == "validator.protocols":
        for point, run in protocol_points(plugin, source):
            progress(f"{name}: {point}")
            yield _result(name, point, run)
    if plugin.found.group != "validator.handlers":
        return
    reasons = [each for each in cases if isinstance(each, str)]
    if case is None:
        reason = "; ".join(reasons) or "no test class that inherits validator.testing.HandlerContract is available"
        yield Result(name, "examples", Outcome.SKIPPED, reason)
    for each in cases:
        if isinstance(each, Case):
            yield from _examples(name, each, progress)


def show(group: str, value: str, name: str, values: str) -> list[str]:
    """Return descriptions of the records that an installed plugin yields, ascending."""
    found = next(each for each in discover(group) if each.value == value and each.entry_name == name)
    plugin = load(found)
    if group == "validator.handlers":
        return sorted(
            f"{each.handler.kind} {each.handler.prefix.hex()} {each.handler.weight} {each.handler.payload_bytes_max} {each.config}"
            for each in handlers_of(plugin, values)
        )
    if group == "validator.protocols":
        return sorted(f"{each.name} {each.rules} {each.encoding_version}" for each in protocols_of(plugin))
    return sorted(f"{each.name} {each.topics}" for each in transports_of(plugin, values))


def _result(name: str, point: str, run: Callable[[], str | None]) -> Result:
    try:
        return Result(name, point, Outcome.OK, run() or "")
    except NotApplicable as reason:
        return Result(name, point, Outcome.SKIPPED, str(reason))
    except (Broken, UserError) as broken:
        return Result(name, point, Outcome.FAILED, str(broken))
    except Exception as error:  # noqa: BLE001  # a plugin may raise anything
        return Result(name, point, Outcome.FAILED, f"{type(error).__name__}: {error}")


def _configuration(plugin: Plugin, case: Case | None, values: str) -> None:
    try:
        configure(plugin, values)
    except PluginError as error:
        if case is not None:
            raise
        raise NotApplicable(f"it needs a configuration: {error}") from None
    points.has_a_configuration_that_survives_json(case or Case(plugin))


def _records(plugin: Plugin, values: str) -> str:
    _need_configuration(plugin, values)
    group = plugin.found.group
    if group == "validator.handlers":
        handlers = handlers_of(plugin, values)
        if conflicts := find_conflicts(handlers):
            raise Broken("\n".join(conflicts))
        names = [bound.handler.kind for bound in handlers]
    elif group == "validator.protocols":
        protocols = protocols_of(plugin)
        names = [protocol.name for protocol in protocols]
        Codec.of(protocols)
        for protocol in protocols:
            if protocol.limits_table is not None and protocol.limits_table.key in _CHAIN_KEYS:
                raise Broken(
                    f"{protocol.name}: limits_table: every chain has a key {protocol.limits_table.key!r}: expected another"
                )
            if protocol.rules_page is not None:
                parse_page(protocol.name, protocol.rules_page.read_text(encoding="utf-8"))
    else:
        names = [transport.name for transport in transports_of(plugin, values)]
    if not names:
        raise Broken("it yields nothing")
    return ", ".join(sorted(names))


def _same_elsewhere(plugin: Plugin, values: str) -> str:
    _need_configuration(plugin, values)
    found = plugin.found
    arguments = ["-c", _SHOW, found.value.partition(":")[0], found.group, found.value, found.entry_name, values]
    shown: list[Any] = []
    for seed in points.HASH_SEEDS:
        run = run_python(arguments, hash_seed=seed)
        if run.returncode != 0:
            raise Broken(f"PYTHONHASHSEED={seed}: {run.stderr.strip().splitlines()[-1]}")
        shown.append(json.loads(run.stdout.splitlines()[-1]))
    for seed, (_, other) in zip(points.HASH_SEEDS, shown, strict=True):
        if other != shown[0][1]:
            raise Broken(f"PYTHONHASHSEED={seed}: it yields {other}, but {shown[0][1]} with {points.HASH_SEEDS[0]}")
    took_ms = min(took for took, _ in shown)
    if took_ms > IMPORT_MS_MAX:
        raise Broken(
            f"importing it takes {took_ms:.0f} ms: expected at most {IMPORT_MS_MAX}: move heavy imports to where they are used"
        )
    return f"imported in {took_ms:.0f} ms"


def _lint(plugin: Plugin) -> None:
    if plugin.found.group == "validator.transports":
        raise NotApplicable("transports run outside of the deterministic zone")
    module = plugin.found.value.partition(":")[0]
    if module.startswith("validator."):
        raise NotApplicable("it is part of validator, whose own tests check it")
    findings = lint_module(module)
    if findings:
        raise Broken("\n".join(map(str, findings)))


def _need_configuration(plugin: Plugin, values: str) -> None:
    if plugin.found.group == "validator.protocols":
        return
    try:
        configure(plugin, values)
    except PluginError as error:
        raise NotApplicable(f"it needs a configuration: {error}") from None


def _examples(name: str, case: Case, progress: Callable[[str], None]) -> Iterator[Result]:
    where = "" if case.source is None else f" ({case.source[1]})"
    for point in EXAMPLE_POINTS:
        check = getattr(points, point)
        words = point.replace("_", " ") + where
        progress(f"{name}: {words}")
        yield _result(name, words, lambda check=check: check(case))  # type: ignore[misc]


def _cases(plugin: Plugin, source: Path) -> Iterator[Case | str]:
    """Yield the cases of a source folder's contract tests for a plugin, and descriptions of files that cannot be imported."""
    for each in test_classes(source, HandlerContract):
        if isinstance(each, str):
            yield each
            continue
        case = each().case()
        if case.loaded().found.value == plugin.found.value:
            yield case


def _main(name: str, source: str, only: str) -> None:
    """Print one line of JSON for each upcoming check and each result; output of plugins goes to stderr."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def report(line: dict[str, str]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    for found in discover():
        if canonicalize_name(found.distribution) == canonicalize_name(name):
            folder = Path(source) if source else None
            for result in check_plugin(found, folder, lambda doing: report({"progress": doing}), only):
                report(result.to_json())


if __name__ == "__main__":
    limit_this_process()
    _main(*sys.argv[1:])
