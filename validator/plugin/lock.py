# SPDX-License-Identifier: Apache-2.0
"""`plugins.lock`: the exact plugins that may run, byte for byte.

The file is a JSON object with ``schema_version`` and ``plugins``. It has sorted keys, two-space indentation and a final newline, so the
same plugins give the same file. An entry's ``sha256`` is `files.files_digest` of its distribution: the same on every machine that installed
the same wheel. It is null for an editable installation, for which only versions are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from packaging.utils import canonicalize_name

from validator.document import Node, read_document
from validator.errors import UserError
from validator.plugin.files import distribution_files, files_digest, find_distribution, is_editable
from validator.plugin.hookspecs import GROUPS
from validator.plugin.registry import Found, Plugin, Problem

SCHEMA_VERSION: Final = 1
"""Incremented by every change that could make an earlier program misread the file."""

_AGAIN: Final = "install what it names, or rewrite it with `validator plugins lock`"


class LockEntry(NamedTuple):
    """A plugin that may run."""

    group: str
    name: str
    version: str
    distribution: str
    distribution_version: str
    sha256: str | None
    """Digest of the distribution's files, in hex; None for an editable installation."""


Lock = tuple[LockEntry, ...]


def lock_entry(plugin: Plugin) -> LockEntry:
    """Return the lock entry of an installed plugin. Raises `UserError` if its files cannot be read."""
    found, manifest = plugin.found, plugin.manifest
    digest = distribution_digest(found.distribution)
    return LockEntry(
        found.group, manifest.name, manifest.version, found.distribution, found.distribution_version, digest
    )


def write_lock(path: Path, plugins: Iterable[Plugin]) -> Lock:
    """Write the lock of installed plugins and return it. Raises `UserError`."""
    lock = tuple(sorted({lock_entry(plugin) for plugin in plugins}))
    document = {"schema_version": SCHEMA_VERSION, "plugins": [entry._asdict() for entry in lock]}
    try:
        path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: the lock cannot be written: {error.strerror}") from error
    return lock


def read_lock(path: Path) -> Lock:
    """Read a lock. Raises `UserError` if it is missing, malformed, or of another schema version."""
    document = read_document(path)
    schema_version = document["schema_version"]
    if schema_version.integer() != SCHEMA_VERSION:
        raise schema_version.fail(f"{SCHEMA_VERSION}, which this validator reads")
    entries = []
    for node in document["plugins"].items():
        node.refuse_misspelt(LockEntry._fields)
        group = node["group"].one_of(list(GROUPS))
        name, version, distribution, its_version = (node[key].text() for key in LockEntry._fields[1:-1])
        digest = node.get("sha256", Node.text, None)
        entries.append(LockEntry(group, name, version, distribution, its_version, digest))
    return tuple(sorted(entries))


def check_lock(lock: Lock, found: Iterable[Found]) -> list[Problem]:
    """Return the problems that keep entry points from running under a lock, without importing them."""
    problems = []
    for each in found:
        entries = [entry for entry in lock if (entry.group, entry.name) == (each.group, each.name)]
        own = [
            entry for entry in entries if canonicalize_name(entry.distribution) == canonicalize_name(each.distribution)
        ]
        right = [entry for entry in own if entry.distribution_version == each.distribution_version]
        if not entries:
            problems.append(Problem(str(each), "the lock does not name it", _AGAIN))
        elif not right:
            named = ", ".join(f"{entry.distribution} {entry.distribution_version}" for entry in own or entries)
            problems.append(Problem(str(each), f"the lock has it from {named}", _AGAIN))
        elif (what := _difference(right[0])) is not None:
            problems.append(Problem(str(each), what, _AGAIN))
    return problems


def check_versions(lock: Lock, plugins: Iterable[Plugin]) -> list[Problem]:
    """Return the problems of plugins that passed `check_lock` but whose manifest has a version that the lock does not name."""
    problems = []
    for plugin in plugins:
        found = plugin.found
        named = [
            entry.version
            for entry in lock
            if (entry.group, entry.name, canonicalize_name(entry.distribution))
            == (found.group, found.name, canonicalize_name(found.distribution))
        ]
        if plugin.manifest.version not in named:
            problems.append(Problem(str(plugin), f"the lock has version {', '.join(named) or 'none'}", _AGAIN))
    return problems


def distribution_digest(name: str) -> str | None:
    """Return `files.files_digest` of an installed distribution, or None for an editable installation. Raises `UserError`."""
    distribution = find_distribution(name)
    return None if is_editable(distribution) else files_digest(distribution_files(distribution))


def _difference(entry: LockEntry) -> str | None:
    try:
        digest = distribution_digest(entry.distribution)
    except UserError as error:
        return str(error)
    if digest == entry.sha256:
        return None
    if digest is None:
        return "the lock has a hash of its files, but it is installed editable"
    if entry.sha256 is None:
        return "the lock was written when it was installed editable, now it is not"
    return f"its files have the hash {digest}, the lock has {entry.sha256}"
