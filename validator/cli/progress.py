# SPDX-License-Identifier: Apache-2.0
"""What a command is doing, on stderr, removed when the work is done. A pipe or a log file gets why a command waits, and nothing else.

Every command that may take over two seconds shows it (`tests/cli/test_progress.py` lists all commands).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, TypeVar

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

from validator.cli.common import say
from validator.cli.table import VisibleConsole
from validator.errors import UserError

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


WHY_AFTER_S: Final = 5.0
"""Seconds that a command waits before it says why."""
WHY_AGAIN_S: Final = 30.0
"""Seconds after which it says so again if the reason is another one by now."""


@contextmanager
def working(what: str, why: Callable[[], str] | None = None) -> Iterator[None]:
    """Show what takes a while, with the seconds that it has taken.

    With ``why``, which is called from a thread and may raise `UserError`, the reason is shown after `WHY_AFTER_S`, in a pipe as one line.
    """
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
        task = shown.add_task(what, total=None)

        def tell(reason: str) -> None:
            shown.update(task, description=f"{what}: {reason}")
            if shown.disable:
                say(f"validator: {what}: {reason}")

        with ExitStack() as stack:
            if why is not None:
                stack.enter_context(_telling(why, tell, WHY_AFTER_S))
            yield


@contextmanager
def _telling(
    why: Callable[[], str], tell: Callable[[str], None], after_s: float, *, is_once: bool = False
) -> Iterator[None]:
    ended = Event()

    def run() -> None:
        last, pause_s = "", after_s
        while not ended.wait(pause_s):
            pause_s = WHY_AGAIN_S
            try:
                reason = why()
            except UserError as error:
                reason = str(error)
            if reason != last and not ended.is_set():
                tell(reason)
                if is_once:
                    return
            last = reason

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()  # the thread is not waited for: it may ask a Kafka that does not answer


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


def until_first(
    chunks: Iterable[list[T]],
    what: str,
    why: Callable[[], str] | None = None,
    stuck: Callable[[], str] | None = None,
) -> Iterator[list[T]]:
    """Yield the same chunks, and show `working` until the first one that is not empty.

    After it, what ``stuck`` returns is said once in each silence of `WHY_AGAIN_S`, unless it is empty.
    """

    def tell(reason: str) -> None:
        say(f"validator: {what}: {reason}")

    with ExitStack() as stack:
        stack.enter_context(working(what, why))
        for chunk in chunks:
            if chunk:
                stack.close()
            yield chunk
            if chunk and stuck is not None:
                stack.enter_context(_telling(stuck, tell, WHY_AGAIN_S, is_once=True))
