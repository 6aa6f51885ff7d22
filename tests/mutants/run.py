# SPDX-License-Identifier: Apache-2.0
"""Applies mutants one at a time to a copy of the tree, and runs the tests of their modules."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from tests.crash.breaks import copied_tree, environment, replace_text
from tests.mutants.modules import ROOT, Group, group_of
from tests.mutants.operators import Mutant, mutants

EXPLAINED = Path(__file__).with_name("explained.toml")

TIMES_OF_SOUND = 8.0
SECONDS_MIN = 60.0
"""A mutant's tests time out after `TIMES_OF_SOUND` times what they take without a mutant, and never before `SECONDS_MIN`."""

Outcome: TypeAlias = Literal["killed", "timed out", "survived", "explained"]


class TestsFail(Exception):
    """The tests of a group fail without a mutant."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the tests said about a mutant; ``source`` is the hash of the file that it was made from."""

    mutant: Mutant
    outcome: Outcome
    seconds: float
    source: str

    @classmethod
    def of(cls, value: dict[str, Any]) -> Result:
        """Return the result that JSON describes."""
        return cls(Mutant(**value["mutant"]), value["outcome"], value["seconds"], value["source"])


@dataclass(slots=True)
class Results:
    """The results so far, kept as JSON: a run continues where the last one ended."""

    path: Path
    found: dict[Mutant, Result] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Return what a file has, without results for sources that have changed."""
        results = cls(path)
        if path.exists():
            for value in json.loads(path.read_text(encoding="utf-8")):
                result = Result.of(value)
                file = ROOT / result.mutant.file
                if file.exists() and _hash(file.read_text(encoding="utf-8")) == result.source:
                    results.found[result.mutant] = result
        return results

    def add(self, result: Result) -> None:
        """Add a result and write the file."""
        self.found[result.mutant] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps([asdict(each) for _, each in sorted(self.found.items())], indent=1) + "\n")
        new.replace(self.path)

    def counts(self, files: Iterable[str]) -> Counter[Outcome]:
        """Count the outcomes of the mutants of some files."""
        wanted = set(files)
        return Counter(each.outcome for mutant, each in self.found.items() if mutant.file in wanted)

    def survivors(self) -> list[Mutant]:
        """Return the mutants that no test has noticed and nobody has explained."""
        return sorted(mutant for mutant, each in self.found.items() if each.outcome == "survived")


def explanations() -> list[dict[str, str]]:
    """Return the mutants that change nothing a test could notice: ``file``, ``line`` (its text), ``operator``, ``why``."""
    listed: list[dict[str, str]] = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get("mutant", [])
    return listed


def is_explained(mutant: Mutant, source: str, listed: Sequence[dict[str, str]]) -> bool:
    """Return whether a mutant is one of those listed."""
    text = source.splitlines()[mutant.line - 1].strip()
    return any(
        (each["file"], each["line"], each["operator"]) == (mutant.file, text, mutant.operator) for each in listed
    )


def sample(seed: int, files: Sequence[str]) -> list[Mutant]:
    """Return the mutants of files in an order that the seed determines: any beginning of it is a fair sample."""
    found = [each for file in files for each in mutants(file, (ROOT / file).read_text(encoding="utf-8"))]
    Random(seed).shuffle(found)
    return found


def run(chosen: Sequence[Mutant], results: Results, *, seconds: float, log: Callable[[str], None] = print) -> Results:
    """Test earlier survivors again, then the mutants that have no result yet, until the time is over. Raises `TestsFail`."""
    ends = time.monotonic() + seconds
    listed = explanations()
    allowed: dict[str, float] = {}
    with copied_tree() as tree:
        for mutant in sorted(chosen, key=lambda each: each not in results.found):
            if mutant in results.found and not _outdated(results.found[mutant], listed):
                continue
            if time.monotonic() >= ends:
                break
            group = group_of(mutant.file)
            source = (tree / mutant.file).read_text(encoding="utf-8")
            if is_explained(mutant, source, listed):
                results.add(Result(mutant, "explained", 0.0, _hash(source)))
                continue
            if group.name not in allowed:
                allowed[group.name] = _time_allowed(tree, group)
            result = _test(tree, mutant, group, allowed[group.name])
            results.add(result)
            log(f"{result.outcome:9} {mutant.place} {mutant.operator}: {mutant.old!r} -> {mutant.new!r}")
    return results


def _outdated(result: Result, listed: Sequence[dict[str, str]]) -> bool:
    source = (ROOT / result.mutant.file).read_text(encoding="utf-8")
    return result.outcome == "survived" or (
        result.outcome == "explained" and not is_explained(result.mutant, source, listed)
    )


def _test(tree: Path, mutant: Mutant, group: Group, seconds_max: float) -> Result:
    path, began = tree / mutant.file, time.monotonic()
    source = path.read_text(encoding="utf-8")
    replace_text(path, mutant.apply(source))
    try:
        code = _pytest(tree, group.tests, seconds_max)
    finally:
        replace_text(path, source)
    outcome: Outcome = "timed out" if code is None else "killed" if code else "survived"
    return Result(mutant, outcome, round(time.monotonic() - began, 1), _hash(source))


def _time_allowed(tree: Path, group: Group) -> float:
    began = time.monotonic()
    if code := _pytest(tree, group.tests, None):
        raise TestsFail(f"the tests of {group.name} end with code {code} without a mutant: {' '.join(group.tests)}")
    return max(SECONDS_MIN, TIMES_OF_SOUND * (time.monotonic() - began))


def _pytest(tree: Path, tests: Sequence[str], seconds_max: float | None) -> int | None:
    """Return the exit code of tests, or None if they do not end in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    quiet = environment(tree) | {"HYPOTHESIS_STORAGE_DIRECTORY": os.fspath(tree / ".hypothesis")}
    try:
        return subprocess.run(
            command, cwd=tree, env=quiet, capture_output=True, check=False, timeout=seconds_max
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
