# SPDX-License-Identifier: Apache-2.0
"""Reads the files of a distribution's archive, which anyone may have made."""

from __future__ import annotations

import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from validator.errors import UserError
from validator.plugin.files import belongs

FILES_MAX: Final = 10_000
"""Files of a distribution."""
FILES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of all files of a distribution, uncompressed."""
WORD_CHARACTERS_MAX: Final = 100
"""Characters of a distribution's name, and of its version."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_]*")
_PROGRAM: Final = frozenset({"validator", "streaming", "plugins"})


def unzipped(path: Path, *, covered: bool = False) -> dict[str, bytes]:
    """Return the files of an archive by path, ascending.

    Raises `UserError`, in this order: too many files, one whose path is not inside or occurs twice, too many bytes, modules that an
    installation moves, with ``covered`` a file that the digest leaves out and Python imports all the same, an archive that cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [each for each in archive.infolist() if not each.is_dir()]
            names = [each.filename for each in entries]
            _check_paths(path, names)
            # no more bytes of a file are read than its entry announces
            if (size := sum(each.file_size for each in entries)) > FILES_BYTES_MAX:
                raise UserError(f"{path}: expected at most {FILES_BYTES_MAX} bytes of files, found {size}")
            if elsewhere := sorted(name for name in names if re.match(r"[^/]+\.data/(purelib|platlib)/", name)):
                raise UserError(
                    f"{path}: {elsewhere[0]} is moved when it is installed: expected modules at the top level"
                )
            if covered and (left_out := sorted(each for each in names if not belongs(each) and not _is_record(each))):
                raise UserError(
                    f"{path}: expected files that the digest in its name covers, found {left_out[0][:100]!r}"
                )
            return {name: archive.read(name) for name in sorted(names) if belongs(name)}
    except OSError as error:
        raise UserError(f"{path}: the archive cannot be read: {error.strerror}") from error
    # also: unknown compression, encrypted, damaged
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: expected a zip archive: {error}") from error


def check_words(source: str, name: str, version: str) -> None:
    """Raise `UserError` unless a distribution's name and version have the form that packages have; they become part of a file's name."""
    for field, word, form in (("Name", name, _NAME), ("Version", version, _VERSION)):
        if len(word) > WORD_CHARACTERS_MAX or form.fullmatch(word) is None:
            expected = f"up to {WORD_CHARACTERS_MAX} characters that match {form.pattern}"
            raise UserError(f"{source}: METADATA {field}: expected {expected}, found {word[:60]!r}")


def check_modules(who: str, names: Iterable[str], owners: Mapping[str, str]) -> None:
    """Raise `UserError` if a file would hide another module: an artefact comes first on the path.

    ``owners`` has, by module, the installed distribution that it belongs to.
    """
    for name in sorted(names):
        first = name.partition("/")[0]
        if first.endswith(".dist-info"):
            continue
        module = first.partition(".")[0]
        if module in sys.stdlib_module_names or module in _PROGRAM:
            raise UserError(f"distribution {who}: {name} would hide module {module}, which every worker has")
        if module in owners:
            raise UserError(f"distribution {who}: {name} would hide module {module} of {owners[module]}")


def _is_record(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    return file == "RECORD" and folder.endswith(".dist-info") and "/" not in folder


def _check_paths(path: Path, names: list[str]) -> None:
    if len(names) > FILES_MAX:
        raise UserError(f"{path}: expected at most {FILES_MAX} files, found {len(names)}")
    seen = set()
    for name in names:
        if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise UserError(f"{path}: expected paths inside the archive, found {name[:100]!r}")
        if name in seen:
            raise UserError(f"{path}: expected each path once, found {name[:100]!r} twice")
        seen.add(name)
