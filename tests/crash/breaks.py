# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.crash --breaks`: break sink and store deliberately, one break at a time, and see that the checks find each.

A break is a substitution of source text in a temporary copy of the tree; the working tree is only read. Schedules against the fake log
find most breaks (`tests.simulation`). Where the fake log replaces the broken code, real writer processes on a real broker find them
(`tests.crash.writers`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.crash.break_list import BREAKS, Break, Check

ROOT = Path(__file__).parents[2]
COPIED = ("avro", "streaming", "tests", "validator")
"""Folders of the tree that the checks import or read."""

SCHEDULES_MAX = 400
SCHEDULES_WITHOUT_BREAK = 20
CHECK_S_MAX = 1_800.0
"""Seconds after which a check that has found nothing counts as hanging."""

COMMANDS: dict[Check, tuple[str, ...]] = {
    "schedules": ("tests.simulation.search", "--schedules"),
    "stages": ("tests.simulation.search", "--stages", "--schedules"),
    "writers": ("tests.crash.writers",),
}
"""By check, its module and arguments; each prints `{"tries": ..., "found": ..., "by_accident": ...}`. Schedules come last."""


class TextMissing(Exception):
    """The text that a break replaces is not in its file exactly once."""


class CheckFailed(Exception):
    """A check fails without any break."""


@dataclass(frozen=True, slots=True)
class Caught:
    """What the check said about one break: ``tries`` are schedules, or kills of real processes."""

    name: str
    file: str
    check: Check
    caught: bool
    tries: int
    seconds: float
    found: str


def broken(source: str, each: Break) -> str:
    """Return a file's text with the break. Raises `TextMissing`."""
    if (count := source.count(each.old)) != 1:
        raise TextMissing(f"{each.name}: {each.file} has its text {count} times, expected once: {each.old!r}")
    return source.replace(each.old, each.new)


@contextmanager
def copied_tree(folders: Sequence[str] = COPIED) -> Iterator[Path]:
    """Copy what the checks need into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="broken-") as name:
        for folder in folders:
            shutil.copytree(ROOT / folder, Path(name, folder), symlinks=True)
        shutil.copy(ROOT / "pyproject.toml", name)
        yield Path(name)


@contextmanager
def applied(tree: Path, each: Break) -> Iterator[None]:
    """Break a file of a copied tree; restore it afterwards. Raises `TextMissing`."""
    path = tree / each.file
    before = path.read_text(encoding="utf-8")
    replace_text(path, broken(before, each))
    try:
        yield
    finally:
        replace_text(path, before)


def replace_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # the time of a change is too coarse to distinguish two versions of equal size
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def environment(tree: Path) -> dict[str, str]:
    """Return the environment in which Python imports the copied tree."""
    return os.environ | {"PYTHONPATH": str(tree)}


def run_breaks(
    breaks: Sequence[Break] = BREAKS,
    *,
    kafka: Callable[[], dict[str, Any]],
    log: Callable[[str], None] = print,
) -> list[Caught]:
    """Apply each break to a copy of the tree and run its check; ``kafka`` starts a broker when it is first needed.

    First runs each check without a break: a check that fails anyway finds nothing. Raises `TextMissing`, `CheckFailed`.
    """
    for each in breaks:
        broken((ROOT / each.file).read_text(encoding="utf-8"), each)
    results = []
    with copied_tree() as tree:
        for check in sorted({each.check for each in breaks}):
            sound = _check(tree, check, None, kafka)
            if sound.caught or not sound.tries:
                raise CheckFailed(f"the check {check!r} fails without a break: {sound.found}")
            log(f"{check}: nothing found without a break, {sound.tries} tries, {sound.seconds:.0f} s")
        for each in breaks:
            with applied(tree, each):
                result = _check(tree, each.check, each, kafka)
            results.append(result)
            log(f"{'caught' if result.caught else 'NOT CAUGHT':10} {each.name}: {result.seconds:.0f} s; {result.found}")
    return results


def _check(tree: Path, check: Check, each: Break | None, kafka: Callable[[], dict[str, Any]]) -> Caught:
    """Run a check on a copied tree, which has the break ``each`` if there is one."""
    began = time.monotonic()
    command = [sys.executable, "-m", *COMMANDS[check]]
    if check != "writers":
        command.append(str(SCHEDULES_WITHOUT_BREAK if each is None else SCHEDULES_MAX))
    given = json.dumps({"kafka": kafka(), "prefix": f"break-{time.monotonic_ns()}."}) if check == "writers" else ""
    try:
        ended = subprocess.run(
            command,
            cwd=tree, env=environment(tree), input=given, text=True, capture_output=True, check=False,
            timeout=CHECK_S_MAX,
        )  # fmt: skip
        said = json.loads(ended.stdout) if ended.returncode == 0 else None
    except subprocess.TimeoutExpired:
        ended, said = None, None
    if said is None:
        last = "hangs" if ended is None else (ended.stderr.splitlines() or ["no message"])[-1]
        said = {"tries": 0, "found": f"the check itself failed: {last}", "by_accident": True}
    caught = bool(said["found"]) and not said["by_accident"]
    name, file = ("no break", "") if each is None else (each.name, each.file)
    return Caught(name, file, check, caught, said["tries"], round(time.monotonic() - began, 1), said["found"])


def write_json(results: Sequence[Caught], path: Path) -> None:
    """Write the results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n", encoding="utf-8")


def table(results: Sequence[Caught]) -> Table:
    """Return the results as a table."""
    shown = Table(
        "break", "file", "caught by", title=f"{sum(each.caught for each in results)} of {len(results)} caught"
    )
    shown.add_column("after", justify="right")
    shown.add_column("seconds", justify="right")
    for each in results:
        unit = ("kill" if each.check == "writers" else "schedule") + "s" * (each.tries != 1)
        by = each.check if each.caught else "NOT CAUGHT"
        shown.add_row(each.name, each.file, by, f"{each.tries} {unit}", f"{each.seconds:.0f}")
    return shown
