# SPDX-License-Identifier: Apache-2.0
"""Checks a plugin's distribution from outside, without its own test run; `validator plugins check DIST` uses this module.

`check_distribution(name_or_path, progress)` returns a list of `Result`, one per plugin and point, in the order of the checks. `progress` is
called with a description of the next check. `Result.outcome` is an `Outcome`: ok, failed or skipped. `Result.detail` says in one or more
lines what is wrong or why a point was skipped. It raises `validator.errors.UserError` if there is nothing to check. A caller exits with 1
if a result has failed.

The plugin's code runs in separate processes (`validator.testing.check_points`), so the caller gets results whatever the plugin does.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import distributions
from pathlib import Path
from threading import Event, Timer
from typing import Any, Final

from packaging.utils import canonicalize_name

from validator.errors import UserError
from validator.plugin.files import find_distribution, is_editable
from validator.plugin.hookspecs import GROUPS
from validator.plugin.pack import build_wheel, pack, unpack
from validator.testing.case import NOT_FROM_ARCHIVES, packable, python_environment

CHECK_SECONDS_MAX: Final = 300
"""Seconds, and seconds of processor time, that the checks of a distribution may take."""
CHECK_MEMORY_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
"""Bytes of address space of a process that runs a plugin's code."""


class Outcome(StrEnum):
    """The outcome of one point."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one point for one plugin; ``plugin`` is ``name@version``, or the entry point's name if it does not load."""

    plugin: str
    point: str
    outcome: Outcome
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the result as JSON values."""
        return {**asdict(self), "outcome": self.outcome.value}


def check_distribution(name_or_path: str, progress: Callable[[str], None] = lambda _: None) -> list[Result]:
    """Check an installed distribution by name, or a wheel (.whl or .zip) or source folder by path; its plugins in order of name.

    A wheel or folder is checked as it would be installed, and takes precedence over an installed version. If there is a source folder,
    including that of an editable installation, the examples of its contract tests run too. Raises `UserError`, in this order: no such
    distribution or file, a path of which no wheel can be made, a distribution without plugins.
    """
    path = Path(name_or_path)
    with tempfile.TemporaryDirectory() as folder:
        is_source = (path / "pyproject.toml").exists() or (path / "setup.py").exists()
        if is_source or path.suffix in (".whl", ".zip") or os.sep in name_or_path:
            if not path.exists():
                raise UserError(f"{name_or_path}: no such file or folder")
            site = path.absolute() if path.suffix == ".zip" else Path(folder) / "site"
            source = str(build_wheel(path, Path(folder))) if is_source else name_or_path
            if site != path.absolute():
                unpack(source, site)
            name = _name_in(site)
            results = _run(name, progress, [str(site)], path.absolute() if path.is_dir() else None)
            if site != path.absolute():
                progress(f"{name}: works from an archive")
                results.append(_from_archive(name, source, Path(folder), results))
            return [_without(result, f"{site}/") for result in results]
        distribution = find_distribution(name_or_path)
        name = str(distribution.metadata["Name"])
        _need_plugins(name, distribution.entry_points)
        examples = Path(packable(distribution)) if is_editable(distribution) else None
        results = _run(name, progress, [], examples)
        progress(f"{name}: works from an archive")
        return [*results, _from_archive(name, packable(distribution), Path(folder), results)]


def _from_archive(name: str, source: str, folder: Path, results: list[Result]) -> Result:
    """Check that every plugin that loads when installed also loads from the archive."""
    point = "works from an archive"
    try:
        archive = pack(source, folder).path
    except UserError as error:
        outcome = Outcome.SKIPPED if NOT_FROM_ARCHIVES in str(error) else Outcome.FAILED
        return Result(name, point, outcome, str(error))
    loads = {result.plugin for result in results if result.point == "loads" and result.outcome is Outcome.OK}
    elsewhere = {each.plugin: each for each in _run(name, lambda _: None, [str(archive)], None, only="loads")}
    for plugin in sorted(loads):
        found = elsewhere.get(plugin)
        if found is None or found.outcome is not Outcome.OK or not found.detail.startswith(f"{archive}/"):
            details = [each.detail for each in elsewhere.values() if each.outcome is Outcome.FAILED] or [
                "it is not found"
            ]
            return Result(plugin, point, Outcome.FAILED, "\n".join(details).replace(f"{archive}/", ""))
    return Result(name, point, Outcome.OK)


def _run(
    name: str, progress: Callable[[str], None], first_on_path: list[str], source: Path | None, only: str = ""
) -> list[Result]:
    """Check the plugins of a distribution in another process."""
    command = [
        sys.executable,
        "-m",
        "validator.testing.check_points",
        name,
        "" if source is None else str(source),
        only,
    ]
    results: list[Result] = []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            env=python_environment(first_on_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # what it starts ends with it
        ) as process,
        _ended(process) as late,
    ):
        assert process.stdout is not None
        doing = "start"
        for line in process.stdout:
            report: dict[str, Any] = json.loads(line)
            if "progress" in report:
                doing = report["progress"]
                progress(doing)
            else:
                results.append(Result(report["plugin"], report["point"], Outcome(report["outcome"]), report["detail"]))
        if process.wait() != 0:
            errors.seek(0)
            last = "\n".join(errors.read().strip().splitlines()[-5:])
            why = f"was ended after {CHECK_SECONDS_MAX} s" if late.is_set() else f"exited with {process.returncode}"
            detail = f"the process {why} at: {doing}\n{last}".strip()
            results.append(Result(name, "runs to completion", Outcome.FAILED, detail))
    return results


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[Event]:
    """End a process and those that it has started after `CHECK_SECONDS_MAX`; the event says whether that was necessary."""
    late = Event()

    def end() -> None:
        late.set()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = Timer(CHECK_SECONDS_MAX, end)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        if process.returncode is None:
            end()


def limit_this_process() -> None:
    """Bound the memory and the processor time of this process, and of each that it starts."""
    resource.setrlimit(resource.RLIMIT_AS, (CHECK_MEMORY_BYTES_MAX, CHECK_MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CHECK_SECONDS_MAX, CHECK_SECONDS_MAX))


def _name_in(archive: Path) -> str:
    found = list(distributions(path=[str(archive)]))
    if len(found) != 1:
        raise UserError(f"{archive}: expected one distribution in it, found {len(found)}")
    name = str(found[0].metadata["Name"])
    _need_plugins(name, found[0].entry_points)
    return name


def _need_plugins(name: str, entries: Iterable[Any]) -> None:
    if not any(entry.group in GROUPS for entry in entries):
        raise UserError(
            f"distribution {canonicalize_name(name)}: no plugin: it has no entry point of {', '.join(GROUPS)}"
        )


def _without(result: Result, prefix: str) -> Result:
    return Result(result.plugin, result.point, result.outcome, result.detail.replace(prefix, ""))
