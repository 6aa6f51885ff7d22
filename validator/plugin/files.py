# SPDX-License-Identifier: Apache-2.0
"""The files of a distribution, and a digest of them that is the same wherever the same wheel is installed, packed or lies as a file.

Left out is what differs between installations: what installers add (`INSTALLER_FILES`), compiled bytecode, and whatever goes outside of the
folder of packages, such as scripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distributions
from pathlib import PurePosixPath
from typing import Final

from validator.errors import UserError

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
"""Files of a ``.dist-info`` folder that say how it was installed, not what."""


def same_name(name: str) -> str:
    """Return a distribution's name as it is compared (PEP 503): ``Remark.Kind`` and ``remark-kind`` are the same."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_distribution(name: str) -> Distribution:
    """Return an installed distribution, the first on the path, as for imports. Raises `UserError`."""
    for distribution in distributions():
        if same_name(distribution.metadata["Name"] or "") == same_name(name):
            return distribution
    raise UserError(f"distribution {name!r}: expected one that is installed, found none of this name")


def is_editable(distribution: Distribution) -> bool:
    """Return whether its modules are those of a source folder, which may change at any time."""
    told = distribution.read_text("direct_url.json")
    try:
        return bool(told) and bool(json.loads(told or "").get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def belongs(name: str) -> bool:
    """Return whether a path of a wheel or its record is one of the files that count."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.suffix == ".pyc" or "__pycache__" in path.parts:
        return False
    top = path.parts[0]
    if top.endswith(".dist-info"):
        return not (len(path.parts) == 2 and path.name in INSTALLER_FILES)
    return not top.endswith(".data")


def distribution_files(distribution: Distribution) -> dict[str, bytes]:
    """Return the files that count by path, ascending. Raises `UserError` where there is no record of files, or a file of it is gone."""
    name = f"{distribution.metadata['Name']} {distribution.version}"
    try:
        listed = distribution.files
    except PackageNotFoundError:  # pragma: no cover - of a folder that goes while it is read
        listed = None
    if listed is None:
        raise UserError(f"distribution {name}: expected a RECORD of its files, found none: install it from a wheel")
    contents = {}
    for path in sorted(listed, key=str):
        if belongs(str(path)):
            try:
                contents[path.as_posix()] = path.read_binary()
            except (OSError, KeyError):
                raise UserError(f"distribution {name}: its file {path} is gone: install it again") from None
    return contents


def files_digest(contents: Mapping[str, bytes]) -> str:
    """Return SHA-256 in hex over a line for each file, by ascending path: its SHA-256 in hex, two spaces, its path, a newline.

    That is what ``sha256sum`` prints for them.
    """
    lines = (f"{sha256(content).hexdigest()}  {path}\n" for path, content in sorted(contents.items()))
    return sha256("".join(lines).encode()).hexdigest()
