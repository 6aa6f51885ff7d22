# SPDX-License-Identifier: Apache-2.0
"""The conformance suites shipped with the installed protocols."""

from __future__ import annotations

from importlib.resources.abc import Traversable

from validator.errors import UserError
from validator.plugin.registry import discover
from validator.plugin.runtime import installed_protocol


def suite_files(name: str) -> list[Traversable]:
    """Return the files of a protocol's suite. Raises `UserError` if there is no such suite."""
    protocol = installed_protocol(name)
    folder = None if protocol is None else protocol.traces.suite
    found = () if folder is None or not folder.is_dir() else folder.iterdir()
    files = sorted((path for path in found if path.name.endswith(".json")), key=lambda path: path.name)
    if not files:
        raise UserError(f"suite {name!r}: no such suite, there are {', '.join(suite_names())}")
    return files


def suite_names() -> list[str]:
    """Return the names of the suites: one for each installed protocol that has one."""
    return sorted(found.name for found in discover("validator.protocols"))
