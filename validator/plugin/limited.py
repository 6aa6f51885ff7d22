# SPDX-License-Identifier: Apache-2.0
"""Runs a program that a stranger has written, such as the build of a plugin, in a process with limits.

Limited are time, processor time, memory, the size of a file and the number of open files; the process and those that it starts end with it.
The process runs as the same user with the same files and network: an operating system lets only its administrator take these away. So build
distributions of strangers in a container or as a separate user.

`python -m validator.plugin.limited PROGRAM ARGUMENT...` sets the limits and becomes the program.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

BUILD_SECONDS_MAX: Final = 300
"""Seconds, and seconds of processor time, that a program may take."""
BUILD_MEMORY_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
"""Bytes of address space of a process."""
BUILD_FILE_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of a file that a process writes."""
BUILD_FILES_MAX: Final = 1_024
"""Open files of a process."""
BUILD_OUTPUT_BYTES_MAX: Final = 64 * 1024
"""Bytes of the end of a program's errors that are read."""


class Ended(NamedTuple):
    """How a program ended: its exit code, the end of what it wrote to standard error, and whether it ran out of time."""

    code: int
    errors: str
    late: bool


def run_limited(command: Sequence[str], seconds: float = BUILD_SECONDS_MAX) -> Ended:
    """Run a program within the limits, without input and output. Whatever it started ends with it."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "validator.plugin.limited", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        late = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        size = errors.seek(0, os.SEEK_END)
        errors.seek(max(0, size - BUILD_OUTPUT_BYTES_MAX))
        return Ended(process.returncode, errors.read().decode("utf-8", "replace"), late)


def _become(program: Sequence[str]) -> None:
    for kind, limit in (
        (resource.RLIMIT_CPU, BUILD_SECONDS_MAX),
        (resource.RLIMIT_AS, BUILD_MEMORY_BYTES_MAX),
        (resource.RLIMIT_FSIZE, BUILD_FILE_BYTES_MAX),
        (resource.RLIMIT_NOFILE, BUILD_FILES_MAX),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (most, most))
    os.execvp(program[0], list(program))  # noqa: S606 - the program is what the caller names, without a shell


if __name__ == "__main__":
    _become(sys.argv[1:])
