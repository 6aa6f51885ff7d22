# SPDX-License-Identifier: Apache-2.0
"""The archives of classes with which Spark's JVM and the embedded broker start faster (class-data sharing of Java).

Java maps the loaded classes of an earlier run into memory instead of parsing them again. An archive is one file in the cache, and holds for
one Java and one place of the program's jars. It is never needed: without it, or if it does not have its sum, a start only takes longer.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java, installed_spark, lean_home
from validator.resources import cache_directory

Program = Literal["spark", "broker"]
PROGRAMS: Final[tuple[Program, ...]] = ("spark", "broker")

OUTPUT_VARIABLES: Final[dict[Program, str]] = {
    "spark": "VALIDATOR_CLASS_ARCHIVE_OUTPUT",
    "broker": "VALIDATOR_BROKER_CLASS_ARCHIVE_OUTPUT",
}
"""By program, the environment variable that makes its JVM write an archive when it ends, and names the file."""

WRITE_S_MAX: Final = 300.0
"""Seconds within which a JVM that ends has to write its archive, which takes Spark's 10 s."""

BYTES_MAX: Final = 1024**3
"""Bytes of the largest archive that is used; Spark's has about 200 MiB, the broker's 50."""

_QUIET: Final = ("-Xlog:cds*=off", "-Xlog:class+path*=off")
"""Java warns on standard output about an archive that it does not use."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """A program's archive and the file next to it, which has its sum. ``home`` is the folder that the program is installed in."""

    path: Path
    home: Path

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
        about = {"sha256": _sum(made), "home": str(self.home)}
        for other in self.path.parent.glob("*.json"):
            home = _home_of(other)
            if home is None or home == self.home or not home.is_dir():
                other.unlink(missing_ok=True)
                other.with_suffix(self.path.suffix).unlink(missing_ok=True)
        made.replace(self.path)
        descriptor = os.open(self._about, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(about, file)


def class_archive(program: Program, jars: Sequence[Path] | None = None) -> ClassArchive | None:
    """Return a program's archive in this installation, whether or not it exists; None for Spark without pyspark.

    ``jars`` are the broker's, from `ensure_jars`, if they have just been verified. Raises `UserError` as that.
    """
    if program == "spark":
        return _of_spark()
    of_broker = ensure_jars() if jars is None else jars
    return _archive("broker", of_broker[0].parent, [path.name for path in of_broker])


def is_writing(program: Program) -> bool:
    """Return whether a program that is started now writes an archive when it ends."""
    return OUTPUT_VARIABLES[program] in os.environ


def java_options(program: Program, jars: Sequence[Path] | None = None) -> tuple[str, ...]:
    """Return the options with which a program's JVM starts: those that use its archive, or write one (`OUTPUT_VARIABLES`).

    ``jars`` are the broker's, from `ensure_jars`, if they have just been verified.
    """
    if is_writing(program):
        return f"-XX:ArchiveClassesAtExit={os.environ[OUTPUT_VARIABLES[program]]}", *_QUIET
    archive = class_archive(program, jars)
    if archive is None or not archive.is_usable() or any(character.isspace() for character in str(archive.path)):
        return ()
    return f"-XX:SharedArchiveFile={archive.path}", "-Xshare:auto", *_QUIET


def _of_spark() -> ClassArchive | None:
    spark = installed_spark()
    if spark is None:
        return None
    jars = [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted((spark / "jars").glob("*.jar"))
    ]
    return _archive("spark", spark, _version(), jars, str(lean_home(spark)))


def _archive(program: Program, home: Path, *identity: object) -> ClassArchive:
    java = find_java().resolve()
    whole = repr((program, str(java), _release(java), str(home), *identity))
    name = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return ClassArchive(cache_directory() / "classes" / f"{name}.jsa", home)


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


def _home_of(about: Path) -> Path | None:
    try:
        return Path(json.loads(about.read_text(encoding="utf-8"))["home"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
