# SPDX-License-Identifier: Apache-2.0
"""Shows on standard error how a client stands: one line that changes at a terminal, a line for each failure elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer

from validator_channel.client.status import Status
from validator_channel.printing import printable

if TYPE_CHECKING:
    from rich.live import Live


class Progress:
    """Takes each `Status` of a client; ``attempts`` is the number after which it gives up.

    The changing line is there only while there is no session, so that it never meets the output of the command at the same terminal.
    """

    def __init__(self, attempts: int, *, is_terminal: bool | None = None) -> None:
        self._attempts = attempts
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._live: Live | None = None
        self._has_failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hide()

    def show(self, status: Status) -> None:
        """Show a status."""
        if self._is_terminal:
            self._show_at_terminal(status)
        elif status.is_online:
            if self._has_failed:
                _say(f"connected to {status.gateway}")
            self._has_failed = False
        elif status.pause_s:
            self._has_failed = True
            _say(f"no session with {status.gateway}: {status.failure}; {self._next(status)} in {status.pause_s:.1f} s")

    def _next(self, status: Status) -> str:
        return f"attempt {status.failures + 1} of {self._attempts}"

    def _show_at_terminal(self, status: Status) -> None:
        if status.is_online:
            self._hide()
            _say(f"connected to {status.gateway}")  # a watch may have nothing to print for long
            return
        text = f"connecting to {status.gateway}, {self._next(status)}"
        if status.failure is not None:
            text += f"; the last one: {status.failure}"
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        spinner = Spinner("dots", printable(text))
        if self._live is None:
            # the commands print records on standard output themselves, which may be a pipe
            self._live = Live(
                spinner, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        else:
            self._live.update(spinner)

    def _hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _say(text: str) -> None:
    typer.echo(f"validator-channel: {printable(text)}", err=True)
