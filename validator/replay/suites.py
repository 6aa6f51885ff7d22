# SPDX-License-Identifier: Apache-2.0
"""The conformance suites that come with the program."""

from __future__ import annotations

from pathlib import Path

from validator.errors import UserError

_SUITES = Path(__file__).resolve().parent / "conformance"


def suite_files(name: str) -> list[Path]:
    """Return the files of a suite, by name. Raises `UserError` where there is no such suite."""
    files = sorted((_SUITES / name).glob("*.json"))
    if not files:
        raise UserError(f"suite {name!r}: no such suite, there are {', '.join(suite_names())}")
    return files


def suite_names() -> list[str]:
    """Return the names of the suites."""
    return sorted(folder.name for folder in _SUITES.iterdir() if folder.is_dir()) if _SUITES.is_dir() else []
