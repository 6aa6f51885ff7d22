# SPDX-License-Identifier: Apache-2.0
"""`validator console`: local web pages that show what the lanes do, live."""

from __future__ import annotations

import os
import sys
import webbrowser
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from validator.cli.common import ConfigPath, connected, say, terminated_as_interrupted
from validator.errors import not_installed

if TYPE_CHECKING:
    from validator.config import Config
    from validator.console.serve import RunningConsole

LISTEN = "127.0.0.1:8480"


def console(
    config_path: ConfigPath = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 lets the system choose one.")
    ] = LISTEN,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Leave out the form that puts dead letters back.")
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
) -> None:
    """Serve pages that show the lanes live: progress, verdicts with their reasons, channels, paras, dead letters, plugins. Ctrl-C stops it.

    It reads Kafka as any consumer does, and the job's checkpoint; only the form of a dead letter writes. The address that it prints has a
    random token: whoever has it may read everything. Use another address than one of this machine only behind a proxy with TLS.
    """
    config = connected(config_path)
    running = running_console(config, listen, read_only=read_only)
    with terminated_as_interrupted(), running:
        sys.stdout.write(f"{running.url}\n")
        sys.stdout.flush()
        if open_browser:
            show_in_browser(running.url)
        try:
            running.wait()
        except KeyboardInterrupt:
            return


def running_console(config: Config, listen: str, *, read_only: bool = False) -> RunningConsole:
    """Return a console that is not started yet. Raises `UserError`: its libraries are not installed, see `RunningConsole`."""
    for library in ("starlette", "uvicorn", "jinja2", "markdown_it"):
        if find_spec(library) is None:
            raise not_installed(library, "console", for_="the console")
    from validator.console.serve import RunningConsole

    warn_of_other_machines(listen)
    return RunningConsole(config, listen, say, read_only=read_only)


def warn_of_other_machines(listen: str) -> None:
    """Say that an address is not this machine's alone. Raises `UserError` if it is none."""
    from validator.web.server import address_of, is_loopback  # an extra

    host, _ = address_of(listen)
    if not is_loopback(host):
        say(f"validator: {listen} is reached by other machines, and nothing is encrypted: use a proxy with TLS")


def show_in_browser(url: str) -> None:
    """Open a page, if there is a screen for it: a browser of the terminal would take the terminal."""
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform in ("darwin", "win32"):
        webbrowser.open(url)
