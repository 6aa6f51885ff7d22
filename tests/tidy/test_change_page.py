# SPDX-License-Identifier: Apache-2.0
"""docs/changing.md has a row for every key of the configuration, and every key of the reference file has a row."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from tests.tidy.change_page import NOTES, PAGE, configuration_keys, render, row_of, table
from tests.tidy.tree import ROOT
from validator.job.start_check import CHAIN, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_every_key_has_a_row() -> None:
    keys = configuration_keys()
    lacking = [key for key in keys if row_of(key) is None]
    assert not lacking, (
        "add the new key to TABLE of job.start_check, and a change of it to tests/unit/lanes/test_kept_start.py"
    )
    assert set(NOTES) <= set(keys)
    assert all(any(key == row or key.startswith(f"{row}.") for key in keys) for row in ROWS), "a row is of no key"


def test_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert table() in text, "run python -m tests.tidy.change_page"
    assert render(text) == text


def key_of(key: str) -> str:
    """Return the row of a key of the file: free keys and a protocol's limits share one."""
    for free in (
        "kafka",
        "transports",
        "jobs",
        "topics.retention_ms",
        "metrics.transports",
        f"{CHAIN}.ump_weights",
        f"{CHAIN}.handlers.config",
    ):
        if key.startswith(f"{free}."):
            return free
    if key.startswith((f"{CHAIN}.host_configuration.", f"{CHAIN}.limits.")):
        return f"{CHAIN}.limits"
    return key


def keys_in(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        key = f"{path}{name}" if path != "chains." else CHAIN
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from keys_in(each, f"{key}.")
        if not isinstance(value, dict) and not (isinstance(value, list) and value and isinstance(value[0], dict)):
            yield key


def test_every_key_of_the_reference_has_a_row() -> None:
    text = (ROOT / "examples" / "validator.toml").read_text(encoding="utf-8")
    uncommented = re.sub(r"^#(?! )", "", text, flags=re.MULTILINE)
    found = {key_of(key) for key in keys_in(tomllib.loads(uncommented))}
    assert len(found) > 35
    keys = set(configuration_keys())
    assert found <= keys, found - keys
