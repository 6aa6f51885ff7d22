# SPDX-License-Identifier: Apache-2.0
"""What a command is doing, on stderr, removed when the work is done. Nothing is written to a pipe or a log file.

Every command that may take over two seconds shows it (`tests/cli/test_progress.py` lists all commands).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from validator.cli.table import VisibleConsole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


@contextmanager
def jar_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield the `progress` that `ensure_jars` and `EmbeddedBroker.start` take: (what, done, total)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = VisibleConsole(stderr=True)
    # unless disabled, rich writes an empty line to a pipe
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, visible=False)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total, visible=True)

        yield show


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show what takes a while, with the seconds that it has taken."""
    console = VisibleConsole(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        Progress(
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=sys.stdout.isatty(),  # otherwise what the command prints would reach the terminal instead of the pipe
        ) as shown
    ):
        shown.add_task(what, total=None)
        yield


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows progress: how much is done, and of how much."""
    columns: tuple[ProgressColumn | str, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    console = VisibleConsole(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None, rate="")

        def show_progress(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:,.0f}/s" if speed else "")

        yield show_progress


def until_first(chunks: Iterable[list[T]], what: str) -> Iterator[list[T]]:
    """Yield the same chunks, and show `working` until the first one that is not empty."""
    with ExitStack() as stack:
        stack.enter_context(working(what))
        for chunk in chunks:
            if chunk:
                stack.close()
            yield chunk
