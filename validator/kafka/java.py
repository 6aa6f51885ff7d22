# SPDX-License-Identifier: Apache-2.0
"""Finds the Java that runs the broker, Ivy and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from validator.errors import UserError

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
