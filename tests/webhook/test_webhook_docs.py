# SPDX-License-Identifier: Apache-2.0
"""The page about webhooks names keys, defaults and requests that exist. `tests/docs/test_pages.py` runs its commands."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

from starlette.routing import Route
from validator_webhook import limits
from validator_webhook.config import Configuration, Definition
from validator_webhook.listener import Listener

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")


def keys(heading: str) -> list[tuple[list[str], str]]:
    """Return, of the table under a heading, the names in each row's first cell and its last cell."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|(?:.*\|)? ([^|]+) \|$", section, re.MULTILINE)
    return [(re.findall(r"\w+", names), last) for names, last in rows]


def test_keys_of_a_subscription() -> None:
    named = [name for names, _ in keys("A subscription") for name in names]
    assert sorted(named) == sorted(each.name for each in fields(Definition))


def test_keys_of_the_table_and_their_defaults() -> None:
    rows = keys("The table")
    defaults = {each.name: each.default for each in fields(Configuration)}
    assert sorted(name for names, _ in rows for name in names) == sorted(defaults)
    for (name, *_), last in rows:
        shown = re.findall(r"`([^`]+)`", last)
        assert shown in (
            [],
            [str(defaults[name]).lower()],
            [f"{defaults[name]:g}" if isinstance(defaults[name], float) else ""],
        )
        assert bool(shown) == (defaults[name] not in (None, (), MISSING))


def test_requests_are_those_that_are_answered() -> None:
    app = Listener(None, "", ("", 0)).app()  # type: ignore[arg-type]
    routes: list[Route] = app._app.routes  # type: ignore[attr-defined]
    answered = {
        f"{method} {route.path.replace('{name}', 'ID')}"
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert answered == set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", PAGE, re.MULTILINE))


def test_numbers() -> None:
    assert f"At most {limits.SUBSCRIPTIONS_MAX} subscriptions run" in PAGE
    assert f"`timeout_seconds` ({limits.ATTEMPT_S:g} s)" in PAGE
    assert (limits.RETRY_FIRST_S, limits.RETRY_LONGEST_S, limits.JITTER) == (1, 600, 0.5)
    assert limits.RETRY_AFTER_S_MAX == 3_600
    assert limits.PARK_AFTER_S == 86_400
    assert limits.COMMIT_S == 1
