# SPDX-License-Identifier: Apache-2.0
"""The files of a distribution and their digest, which is the same for a wheel file, its archive and every installation of it.

The digest leaves out what differs between installations: files that installers add (`INSTALLER_FILES`), compiled bytecode, and files
installed outside the package folder, such as scripts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distributions
from pathlib import PurePosixPath
from typing import Final

from validator.errors import UserError

GROUP_PREFIX: Final = "validator."
"""What the names of all groups of plugins begin with."""

INSTALLER_FILES: Final = frozenset(
    {
        "INSTALLER",
        "RECORD",
        "RECORD.jws",
        "RECORD.p7s",
        "REQUESTED",
        "direct_url.json",
        "uv_build.json",
        "uv_cache.json",
    }
)
"""Files of a ``.dist-info`` folder that depend on how the distribution was installed."""


def find_distribution(name: str) -> Distribution:
    """Return an installed distribution: the first on the path, as imports do. Raises `UserError`."""
    found = next(iter(distributions(name=name)), None) if name else None
    if found is not None:
        return found
    plugins = [
        each.metadata["Name"] or "?"
        for each in distributions()
        if any(entry.group.startswith(GROUP_PREFIX) and entry.name == name for entry in each.entry_points)
    ]
    hint = f"; the plugin {name!r} is in {' and '.join(dict.fromkeys(plugins))}" if plugins else ""
    raise UserError(f"distribution {name!r}: expected one that is installed, found none of this name{hint}")


def is_editable(distribution: Distribution) -> bool:
    """Return whether its modules come from a source folder, which may change at any time."""
    direct_url = distribution.read_text("direct_url.json")
    try:
        return bool(direct_url) and bool(json.loads(direct_url or "").get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def belongs(name: str) -> bool:
    """Return whether the digest covers a path of a wheel or of its record."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.suffix == ".pyc" or "__pycache__" in path.parts:
        return False
    top = path.parts[0]
    if top.endswith(".dist-info"):
        return not (len(path.parts) == 2 and path.name in INSTALLER_FILES)
    return not top.endswith(".data")


def distribution_files(distribution: Distribution) -> dict[str, bytes]:
    """Return the contents of the files that the digest covers, by ascending path.

    Raises `UserError` if there is no record of files, or if a recorded file is missing.
    """
    name = f"{distribution.metadata['Name']} {distribution.version}"
    try:
        listed = distribution.files
    except PackageNotFoundError:  # pragma: no cover - the folder was deleted during the read
        listed = None
    if listed is None:
        raise UserError(f"distribution {name}: expected a RECORD of its files, found none: install it from a wheel")
    contents = {}
    for path in sorted(listed, key=str):
        if belongs(str(path)):
            try:
                contents[path.as_posix()] = path.read_binary()
            except (OSError, KeyError):
                raise UserError(f"distribution {name}: its file {path} is missing: install it again") from None
    return contents


def files_digest(contents: Mapping[str, bytes]) -> str:
    """Return the SHA-256, in hex, of what ``sha256sum`` prints for the files.

    That is one line per file, by ascending path: its SHA-256 in hex, two spaces, its path, a newline.
    """
    lines = (f"{sha256(content).hexdigest()}  {path}\n" for path, content in sorted(contents.items()))
    return sha256("".join(lines).encode()).hexdigest()
