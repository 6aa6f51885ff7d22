# SPDX-License-Identifier: Apache-2.0
"""The archive of classes with which Spark's JVM starts faster (class-data sharing of Java): one file per installation, in the cache.

Java maps the loaded classes of an earlier run into memory instead of parsing them again. The archive holds for one Java, one Spark and one
place of its jars. It is never needed: without it, or if it does not have its sum, a start only takes longer.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java
from validator.resources import cache_directory

OUTPUT_VARIABLE: Final = "VALIDATOR_CLASS_ARCHIVE_OUTPUT"
"""The environment variable that makes a job write an archive when it ends, and names the file."""

BYTES_MAX: Final = 1024**3
"""Bytes of the largest archive that is used; one has about 200 MiB."""

_QUIET: Final = "-Xlog:cds*=off -Xlog:class+path*=off"
"""Java warns on standard output about an archive that it does not use."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """An installation's archive and the file next to it, which has its sum."""

    path: Path
    spark: Path

    @property
    def _about(self) -> Path:
        return self.path.with_suffix(".json")

    def is_usable(self) -> bool:
        """Return whether the archive is complete and undamaged."""
        try:
            about = json.loads(self._about.read_text(encoding="utf-8"))
            return self.path.stat().st_size <= BYTES_MAX and about["sha256"] == _sum(self.path)
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def keep(self, made: Path) -> None:
        """Take a file that Java has written, and remove the archives that it replaces. Raises `OSError`."""
        made.chmod(0o600)
        about = {"sha256": _sum(made), "spark": str(self.spark)}
        for other in self.path.parent.glob("*.json"):
            spark = _spark_of(other)
            if spark is None or spark == self.spark or not spark.is_dir():
                other.unlink(missing_ok=True)
                other.with_suffix(self.path.suffix).unlink(missing_ok=True)
        made.replace(self.path)
        descriptor = os.open(self._about, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(about, file)


def class_archive(cache: Path | None = None) -> ClassArchive | None:
    """Return the archive of this installation, whether or not it exists; None without pyspark. Raises `UserError` as `ensure_jars`."""
    spec = find_spec("pyspark")  # located, not imported
    if spec is None or not spec.submodule_search_locations:
        return None
    spark = Path(spec.submodule_search_locations[0]).resolve()
    java = find_java().resolve()
    jars = [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted((spark / "jars").glob("*.jar"))
    ]
    connector = [str(path) for path in ensure_jars("spark")]
    identity = repr((str(java), _release(java), _version(), str(spark), jars, connector))
    name = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return ClassArchive((cache or cache_directory()) / "classes" / f"{name}.jsa", spark)


def java_options() -> str:
    """Return the options with which Spark's JVM starts: those that use the archive, or write one (`OUTPUT_VARIABLE`)."""
    output = os.environ.get(OUTPUT_VARIABLE)
    if output is not None:
        return f"-XX:ArchiveClassesAtExit={output} {_QUIET}"
    archive = class_archive()
    if archive is None or not archive.is_usable() or any(character.isspace() for character in str(archive.path)):
        return ""
    return f"-XX:SharedArchiveFile={archive.path} -Xshare:auto {_QUIET}"


def _release(java: Path) -> str:
    try:
        return (java.parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return str(java.stat().st_mtime_ns)


def _version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return ""


def _spark_of(about: Path) -> Path | None:
    try:
        return Path(json.loads(about.read_text(encoding="utf-8"))["spark"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
