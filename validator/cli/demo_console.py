# SPDX-License-Identifier: Apache-2.0
"""The web console of a demo."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from validator.cli.console import LISTEN, running_console, show_in_browser
from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from validator.config import Config
    from validator.console.serve import RunningConsole

ANY_PORT: Final = "127.0.0.1:0"
WAIT_S: Final = 0.2
"""Seconds between two looks at whether the job still runs."""


def served(config: Config, *, in_browser: bool) -> RunningConsole:
    """Return a console, started by its context manager, on the usual port or, if that is taken, on any."""
    try:
        running = running_console(config, LISTEN)
    except UserError:
        running = running_console(config, ANY_PORT)
    if in_browser:
        show_in_browser(running.url)
    return running


def wait_for_interrupt(ended: Callable[[], bool]) -> None:
    """Return at Ctrl-C, or once the job has ended."""
    try:
        while not ended():
            time.sleep(WAIT_S)
    except KeyboardInterrupt:
        return
