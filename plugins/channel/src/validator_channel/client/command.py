# SPDX-License-Identifier: Apache-2.0
"""The commands `validator-channel submit` and `validator-channel watch`.

Exit codes: 0 everything was acknowledged, or watched as long as asked; 1 the gateway has refused something; 2 wrong arguments, files or
lines; 3 no session, or no answer in time; 130 Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS, After, parse_position, read_record
from validator_channel.client.client import ChannelClient
from validator_channel.client.config import ClientConfig, ConfigError, load_config
from validator_channel.client.errors import ClientClosed, NotConnected, Refused
from validator_channel.client.limits import LINE_BYTES_MAX, ClientLimits
from validator_channel.client.watching import WatchEvent
from validator_channel.net.tls import TlsError
from validator_channel.printing import printable

REFUSED: Final = 1
"""Exit code: the gateway has refused something."""
WRONG: Final = 2
"""Exit code: wrong arguments, files or lines."""
NO_ANSWER: Final = 3
"""Exit code: no session, or no answer in time."""
INTERRUPTED: Final = 130
"""Exit code: Ctrl-C."""
ATTEMPTS_MAX: Final = 8
"""Attempts to connect in a row before the command gives up; about 20 seconds."""

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with the keys of the options below, which override it.")
]
Gateways = Annotated[
    list[str] | None, typer.Option("--gateway-address", help="HOST:PORT of the gateway; several are tried in turn.")
]
PeerOption = Annotated[str | None, typer.Option("--peer", help="Our peer ID: 32 hex digits.")]
GatewayPeer = Annotated[str | None, typer.Option("--gateway", help="The gateway's peer ID: 32 hex digits.")]
Certificate = Annotated[str | None, typer.Option("--certificate", help="Our certificate.")]
KeyFile = Annotated[str | None, typer.Option("--key", help="Our private key.")]
CaFile = Annotated[str | None, typer.Option("--ca", help="The CA of the gateway's certificate.")]
ServerName = Annotated[str | None, typer.Option("--server-name", help="What the gateway's certificate names.")]
PskFile = Annotated[str | None, typer.Option("--psk-file", help="The pre-shared key, if there is one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0.0, help="Seconds without an answer, then exit code 3.")
]


def submit(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Records in JSON form, one per line; - is standard input.")
    ],
    topic: Annotated[str, typer.Option("--topic", help=f"{', '.join(SUBMIT_TOPICS)}.")] = "candidates",
    config: ConfigFile = None,
    gateways: Gateways = None,
    peer: PeerOption = None,
    gateway: GatewayPeer = None,
    certificate: Certificate = None,
    key: KeyFile = None,
    ca: CaFile = None,
    server_name: ServerName = None,
    psk_file: PskFile = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Submit records, and wait until Kafka has each of them.

    If a file has a bad line, nothing of it is sent; standard input is sent up to the first bad line. A record that is submitted again is
    written once. Exit code 1 if a record was refused, 2 for wrong arguments or lines, 3 if there was no session or no answer in time.
    """
    _check_topic(topic, SUBMIT_TOPICS)
    options = {"gateways": gateways, "peer": peer, "gateway": gateway, "certificate": certificate, "key": key, "ca": ca}
    settings = _config(config, {**options, "server_name": server_name, "psk_file": psk_file})
    with _opened(file) as stream:
        if file != "-":
            _check_lines(file, stream)
        raise typer.Exit(_run(_submit(settings, topic, file, stream, timeout, as_json=as_json)))


def watch(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help=f"{', '.join(WATCH_TOPICS)}.")],
    after: Annotated[
        str,
        typer.Option(help="Begin after this offset (OFFSET, or PARTITION:OFFSET,...), at the start, or at the end."),
    ] = "start",
    count: Annotated[int | None, typer.Option(min=1, help="End after this many records; else with Ctrl-C.")] = None,
    config: ConfigFile = None,
    gateways: Gateways = None,
    peer: PeerOption = None,
    gateway: GatewayPeer = None,
    certificate: Certificate = None,
    key: KeyFile = None,
    ca: CaFile = None,
    server_name: ServerName = None,
    psk_file: PskFile = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Print the records of our paras as they are committed, each once, also over a lost connection.

    With --json, each line has `after`: the value to give to --after in order to continue behind it. Exit code 1 if the topic was refused, 2
    for wrong arguments, 3 if there was no session or no record in time.
    """
    _check_topic(topic, WATCH_TOPICS)
    try:
        begin = parse_position(after)
    except ValueError as error:
        raise typer.Exit(_failed(f"--after: {error}", WRONG)) from None
    options = {"gateways": gateways, "peer": peer, "gateway": gateway, "certificate": certificate, "key": key, "ca": ca}
    settings = _config(config, {**options, "server_name": server_name, "psk_file": psk_file})
    raise typer.Exit(_run(_watch(settings, topic, begin, count, timeout, as_json=as_json)))


# --- what runs ---


class _Bad(Exception):
    """Wrong arguments, files or lines; the text is one line."""


async def _submit(
    config: ClientConfig, topic: str, name: str, stream: BinaryIO, timeout_s: float | None, *, as_json: bool
) -> int:
    code = 0

    async def one(number: int, payload: bytes) -> None:
        nonlocal code
        try:
            receipt = await client.submit(topic, payload)
        except Refused as refusal:
            code = REFUSED
            error = printable(refusal.error)
            _print(
                {"line": number, "ok": False, "error": refusal.error},
                f"line {number}: refused: {error}",
                as_json=as_json,
            )
        else:
            fields = {"line": number, "ok": True, "message": receipt.message, "attempts": receipt.attempts}
            _print(fields, f"line {number}: acknowledged as {receipt.message}", as_json=as_json)

    limits = ClientLimits(attempts_max=ATTEMPTS_MAX)
    pending: set[asyncio.Task[None]] = set()
    bad: _Bad | None = None
    async with ChannelClient(config, limits=limits) as client:
        try:
            async for number, payload in _in_background(_records(name, stream)):
                pending.add(asyncio.create_task(one(number, payload)))
                if len(pending) >= limits.pending_max:
                    pending = await _settled(pending, timeout_s)
        except _Bad as error:  # what came before it is sent
            bad = error
        while pending:
            pending = await _settled(pending, timeout_s)
    if bad is not None:
        raise bad
    return code


async def _settled(pending: set[asyncio.Task[None]], timeout_s: float | None) -> set[asyncio.Task[None]]:
    """Wait for at least one record and return the others."""
    done, left = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if not done:
        raise TimeoutError
    for each in done:
        each.result()
    return left


async def _watch(
    config: ClientConfig, topic: str, after: After, count: int | None, timeout_s: float | None, *, as_json: bool
) -> int:
    limits = ClientLimits(attempts_max=ATTEMPTS_MAX)
    async with ChannelClient(config, limits=limits) as client, aclosing(client.watch(topic, after)) as events:
        while count is None or count > 0:
            async with asyncio.timeout(timeout_s):
                event = await anext(events)
            _print_event(event, as_json=as_json)
            count = None if count is None else count - 1
    return 0


def _run(main: Coroutine[Any, Any, int]) -> int:
    """Run a command; what went wrong becomes one line."""
    log = logging.getLogger("validator_channel")
    log.propagate = False
    log.addHandler(logging.NullHandler())
    try:
        return asyncio.run(main)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (_Bad, TlsError) as error:
        return _failed(str(error), WRONG)
    except Refused as error:
        return _failed(error.error, REFUSED)
    except (NotConnected, ClientClosed) as error:
        return _failed(str(error), NO_ANSWER)
    except TimeoutError:
        return _failed("no answer in time", NO_ANSWER)


def _failed(text: str, code: int) -> int:
    typer.echo(f"validator-channel: {printable(text)}", err=True)
    return code


# --- arguments ---


def _check_topic(topic: str, known: Mapping[str, int]) -> None:
    if topic not in known:
        raise typer.Exit(_failed(f"topic: expected one of {', '.join(known)}, found {topic!r}", WRONG))


def _config(path: Path | None, options: Mapping[str, Any]) -> ClientConfig:
    try:
        return load_config(path, options)
    except ConfigError as error:
        for line in str(error).splitlines():
            _failed(line, WRONG)
        raise typer.Exit(WRONG) from None


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as stream:
            yield stream
    except OSError as error:
        raise typer.Exit(_failed(f"{name}: {error.strerror}", WRONG)) from None


def _records(name: str, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line that is not empty. Raises `_Bad` for one that is too long or not a JSON object."""
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        place = f"{'standard input' if name == '-' else name}, line {number}"
        if len(line) > LINE_BYTES_MAX:
            raise _Bad(f"{place}: expected at most {LINE_BYTES_MAX} bytes")
        payload = line.strip()
        if not payload:
            continue
        try:
            read_record(payload)
        except ValueError as error:
            raise _Bad(f"{place}: {error}") from None
        yield number, payload


async def _in_background(lines: Iterator[tuple[int, bytes]]) -> AsyncIterator[tuple[int, bytes]]:
    """Yield lines that are read in another thread, so that a slow source does not hold up the session."""
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, next, lines, None)) is not None:
        yield line


def _check_lines(name: str, stream: BinaryIO) -> None:
    try:
        for _ in _records(name, stream):
            pass
    except _Bad as error:
        raise typer.Exit(_failed(str(error), WRONG)) from None
    stream.seek(0)


# --- output ---


def _print(fields: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    sys.stdout.write((json.dumps(fields) if as_json else text) + "\n")
    sys.stdout.flush()


def _print_event(event: WatchEvent, *, as_json: bool) -> None:
    after = {str(partition): offset for partition, offset in event.after.items()}
    fields = {"partition": event.partition, "offset": event.offset, "after": after, "record": event.record}
    record = event.record or {"error": event.error}
    shown = (f"{name}={printable(json.dumps(value))}" for name, value in record.items() if value not in (None, [], {}))
    text = f"{event.partition}/{event.offset}  {' '.join(shown)}"
    _print(fields if event.error is None else {**fields, "error": event.error}, text, as_json=as_json)
