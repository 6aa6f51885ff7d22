# SPDX-License-Identifier: Apache-2.0
"""Writes what others say to the log so that it is recognised: no line passes for one of the program's own, and none ends the log."""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

from validator.document import printable

LINE_CHARACTERS_MAX: Final = 4096
"""Characters of a line; a longer one becomes several."""

OF_A_LANE: Final = "a lane's process: "


def write_quoted(text: str, before: str = OF_A_LANE) -> None:
    """Write a text to standard error, each line with something before it."""
    for line in text.splitlines():
        sys.stderr.write(f"{before}{printable(line)}\n")
    sys.stderr.flush()


def quoting_pipe() -> int:
    """Return the writing end of a pipe whose lines are written to standard error."""
    read, write = os.pipe()
    threading.Thread(target=_copy, args=(read,), daemon=True).start()
    return write


def _copy(pipe: int) -> None:
    with os.fdopen(pipe, encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in iter(lambda: lines.readline(LINE_CHARACTERS_MAX), ""):
            write_quoted(line)
