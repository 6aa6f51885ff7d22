# SPDX-License-Identifier: Apache-2.0
"""The points of `validator.testing.check`, run in the process that loads a distribution's plugins."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name

from validator.codec.codec import Codec
from validator.config.chain import Chain
from validator.core.handlers.dispatch import find_conflicts
from validator.errors import UserError
from validator.plugin.protocol_parts import LIMITS
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
from validator.testing import points
from validator.testing.case import Broken, Case, NotApplicable, run_python
from validator.testing.check import Outcome, Result, limit_this_process
from validator.testing.check_protocol import protocol_points
from validator.testing.check_tests import test_classes
from validator.testing.contract import HandlerContract
from validator.testing.lint import lint_module

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
