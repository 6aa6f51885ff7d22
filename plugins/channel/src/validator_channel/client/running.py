# SPDX-License-Identifier: Apache-2.0
"""What `validator-channel submit` and `validator-channel watch` do once their arguments are read, and how they show where they stand."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, BinaryIO

from validator_channel.application import After, read_record
from validator_channel.client.client import ChannelClient, ClientClosed, NotConnected, Refused, Status, WatchEvent
from validator_channel.command import FAILED, INTERRUPTED, NO_ANSWER, Client, say
from validator_channel.errors import printable
from validator_channel.limits import LINE_BYTES_MAX, LINES_SHOWN_MAX, ClientLimits
from validator_channel.net.tls import TlsError

if TYPE_CHECKING:
    from rich.live import Live


class Progress:
    """Takes each `Status` of a client; ``attempts`` is the number after which it gives up.

    The changing line is there only while there is no session, so that it never meets the output of the command at the same terminal.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._is_terminal = sys.stderr.isatty()
        self._live: Live | None = None
        self._has_failed = False

    def show(self, status: Status) -> None:
        if self._is_terminal:
            self._show_at_terminal(status)
        elif status.is_online:
            if self._has_failed:
                say(f"connected to {status.gateway}")
            self._has_failed = False
        elif status.pause_s:
            self._has_failed = True
            say(f"no session with {status.gateway}: {status.failure}; {self._next(status)} in {status.pause_s:.1f} s")

    def _next(self, status: Status) -> str:
        return f"attempt {status.failures + 1} of {self._attempts}"

    def _show_at_terminal(self, status: Status) -> None:
        if status.is_online:
            self.close()
            say(f"connected to {status.gateway}")  # a watch may have nothing to print for long
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

    def close(self) -> None:
        """Take the changing line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class BadLine(Exception):
    """A line that cannot be submitted; the text is one line."""


async def submit(client: Client, topic: str, name: str, stream: BinaryIO) -> int:
    """Submit the records of a stream and return the exit code. Raises `BadLine`, ``TimeoutError`` and what the client raises."""
    code = 0

    async def one(number: int, payload: bytes) -> None:
        nonlocal code
        try:
            receipt = await peer.submit(topic, payload)
        except Refused as refusal:
            code = FAILED
            fields = {"line": number, "ok": False, "error": refusal.error}
            text = f"refused: {printable(refusal.error)}"
        else:
            fields = {"line": number, "ok": True, "message": receipt.message, "attempts": receipt.attempts}
            text = f"acknowledged as {receipt.message}"
        _print(fields, f"line {number}: {text}", as_json=client.as_json)

    limits = ClientLimits(attempts_max=client.attempts)
    pending: dict[asyncio.Task[None], int] = {}
    bad: BadLine | None = None
    progress = Progress(client.attempts)
    async with ChannelClient(client.config, limits=limits, on_status=progress.show) as peer:
        try:
            with closing(progress):
                try:
                    async for number, payload in _in_background(records(name, stream)):
                        pending[asyncio.create_task(one(number, payload))] = number
                        if len(pending) >= limits.pending_max:
                            await _settle(pending, client.timeout_s)
                except BadLine as error:  # what came before it is sent
                    bad = error
                while pending:
                    await _settle(pending, client.timeout_s)
        except BaseException as error:
            await _give_up(pending, error)
            raise
    if bad is not None:
        raise bad
    return code


async def _settle(pending: dict[asyncio.Task[None], int], timeout_s: float | None) -> None:
    """Wait for at least one record, and remove those that are settled."""
    done, _ = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if not done:
        raise TimeoutError
    for each in done:
        each.result()
        del pending[each]


async def _give_up(pending: dict[asyncio.Task[None], int], error: BaseException) -> None:
    """End what waits, and note in the error which lines are not acknowledged: `run` prints that after the cause."""
    for each in pending:
        each.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if pending and not isinstance(error, TlsError):  # our own files: nothing was sent
        numbers = sorted(pending.values())
        shown = ", ".join(map(str, numbers[:LINES_SHOWN_MAX])) + (", ..." if len(numbers) > LINES_SHOWN_MAX else "")
        text = f"{len(numbers)} {'line is' if len(numbers) == 1 else 'lines are'} not acknowledged: {shown}"
        if isinstance(error, Exception):
            error.add_note(text)
        else:
            say(text)  # after Ctrl-C there is no other line


async def watch(client: Client, topic: str, after: After, count: int | None) -> int:
    """Print records until there are ``count`` of them, and return the exit code. Raises ``TimeoutError`` and what the client raises."""
    limits = ClientLimits(attempts_max=client.attempts)
    progress = Progress(client.attempts)
    async with ChannelClient(client.config, limits=limits, on_status=progress.show) as peer:
        with closing(progress):
            async with aclosing(peer.watch(topic, after)) as events:
                while count is None or count > 0:
                    async with asyncio.timeout(client.timeout_s):
                        event = await anext(events)
                    _print_event(event, as_json=client.as_json)
                    count = None if count is None else count - 1
    return 0


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a command and return its exit code; what went wrong becomes one line."""
    log = logging.getLogger("validator_channel")
    log.propagate = False
    log.addHandler(logging.NullHandler())
    try:
        return asyncio.run(main)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BadLine, TlsError) as error:
        return say(str(error), *_notes(error))
    except Refused as error:
        return say(error.error, code=FAILED)
    except (NotConnected, ClientClosed) as error:
        return say(str(error), *_notes(error), code=NO_ANSWER)
    except TimeoutError as error:
        return say("no answer in time", *_notes(error), code=NO_ANSWER)


def _notes(error: Exception) -> list[str]:
    return getattr(error, "__notes__", [])


def records(name: str, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line that is not empty. Raises `BadLine` for one that is too long or not a JSON object."""
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        place = f"{'standard input' if name == '-' else name}, line {number}"
        if len(line) > LINE_BYTES_MAX:
            raise BadLine(f"{place}: expected at most {LINE_BYTES_MAX} bytes")
        payload = line.strip()
        if not payload:
            continue
        try:
            read_record(payload)
        except ValueError as error:
            raise BadLine(f"{place}: {error}") from None
        yield number, payload


async def _in_background(lines: Iterator[tuple[int, bytes]]) -> AsyncIterator[tuple[int, bytes]]:
    """Yield lines that are read in another thread, so that a slow source does not hold up the session."""
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, next, lines, None)) is not None:
        yield line


# --- output ---


def _print(fields: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    sys.stdout.write((json.dumps(fields) if as_json else text) + "\n")
    sys.stdout.flush()


def _print_event(event: WatchEvent, *, as_json: bool) -> None:
    after = {str(partition): offset for partition, offset in event.after.items()}
    fields = {"partition": event.partition, "offset": event.offset, "after": after, "record": event.record}
    record = event.record or {"error": event.error}
    shown = (f"{name}={printable(json.dumps(value))}" for name, value in record.items() if value not in (None, [], {}))
    text = f"{event.partition}:{event.offset}  {' '.join(shown)}"
    _print(fields if event.error is None else {**fields, "error": event.error}, text, as_json=as_json)
