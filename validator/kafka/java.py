# SPDX-License-Identifier: Apache-2.0
"""Finds the Java that runs the broker, Ivy and Spark, and the installation of Spark that a job on one machine starts.

That is pyspark's, without the archives of its Python packages. Spark puts those on the path of each Python process that it starts, before
the installed packages. They have no bytecode, so every process would compile what it imports of pyspark: 0.7 s of processor time, three
times one after the other before the first batch.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.errors import UserError
from validator.resources import cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


OLDEST = 17
"""The oldest Java version that both Spark 4 and Kafka 4 run on."""

_FIX = "install a Java 17 or 21 runtime (Debian: openjdk-17-jre-headless; macOS: openjdk@21 of brew) or set JAVA_HOME"


def find_java() -> Path:
    """Return the `java` program of JAVA_HOME, else of PATH, if its version is 17 or newer.

    Errors: `UserError` with the fix if there is none or all are too old.
    """
    seen: list[str] = []
    for candidate in _candidates():
        version = _major_version(candidate)
        if version is not None and version >= OLDEST:
            return candidate
        seen.append(f"{candidate} is {'not runnable' if version is None else f'Java {version}'}")
    found = "; ".join(seen) if seen else "found none in JAVA_HOME or PATH"
    raise UserError(f"Java {OLDEST} or newer is needed, {found}: {_FIX}")


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _major_version(java: Path) -> int | None:
    """Read the version from the runtime's `release` file; without that file, ask the program (which takes 0.1 s)."""
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        text = release.read_text(encoding="utf-8", errors="replace")
        pattern = r'JAVA_VERSION="(?:1\.)?(\d+)'
    else:
        try:
            answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        text, pattern = answer.stderr, r'version "(?:1\.)?(\d+)'
    match = re.search(pattern, text)
    return int(match[1]) if match else None


HOME_VARIABLE: Final = "SPARK_HOME"
"""The environment variable by which Spark's scripts and its JVM find the installation."""

_NEEDED: Final = ("bin", "jars")


def installed_spark() -> Path | None:
    """Return the folder of pyspark, None if it is not installed."""
    spec = find_spec("pyspark")  # located, not imported
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]).resolve()


def lean_home(spark: Path) -> Path:
    """Return the place of the folder that has only the needed folders of an installation."""
    name = hashlib.sha256(str(spark).encode()).hexdigest()[:12]
    return cache_directory() / "spark" / name


def make_lean_home(spark: Path) -> Path:
    """Make that folder, of symbolic links, if it is missing, and return it. Raises `OSError`."""
    home = lean_home(spark)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in _NEEDED:
        with suppress(FileExistsError):
            (home / name).symlink_to(spark / name, target_is_directory=True)
    return home


def use_lean_home() -> None:
    """Let this process start Spark from that folder, unless the user has named another installation, or the folder cannot be made."""
    spark = installed_spark()
    named = os.environ.get(HOME_VARIABLE)
    if spark is None or (named is not None and Path(named).resolve() != spark):
        return
    with suppress(OSError):
        os.environ[HOME_VARIABLE] = str(make_lean_home(spark))
