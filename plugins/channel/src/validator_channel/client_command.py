# SPDX-License-Identifier: Apache-2.0
"""The commands `validator-channel submit` and `validator-channel watch`.

Exit codes: 0 everything was acknowledged, or watched as long as asked; 1 the gateway has refused something; 2 wrong arguments, files or
lines; 3 no session, or no answer in time; 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS, parse_position
from validator_channel.printing import printable

if TYPE_CHECKING:
    from validator_channel.client.config import ClientConfig

WRONG: Final = 2
"""Exit code: wrong arguments, files or lines."""

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
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="Attempts to connect in a row, then exit code 3.")]
ATTEMPTS: Final = 11
"""Attempts to connect before a command gives up, by default: 55 to 110 seconds, longer than a standby takes to become active."""


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
    attempts: Attempts = ATTEMPTS,
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
        from validator_channel.client import running
        from validator_channel.client.running import Patience

        raise typer.Exit(
            running.run(running.submit(settings, topic, file, stream, Patience(attempts, timeout), as_json=as_json))
        )


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
    attempts: Attempts = ATTEMPTS,
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
        raise typer.Exit(_wrong(f"--after: {error}")) from None
    options = {"gateways": gateways, "peer": peer, "gateway": gateway, "certificate": certificate, "key": key, "ca": ca}
    settings = _config(config, {**options, "server_name": server_name, "psk_file": psk_file})
    from validator_channel.client import running
    from validator_channel.client.running import Patience

    raise typer.Exit(
        running.run(running.watch(settings, topic, begin, count, Patience(attempts, timeout), as_json=as_json))
    )


def _check_topic(topic: str, known: Mapping[str, int]) -> None:
    if topic not in known:
        raise typer.Exit(_wrong(f"topic: expected one of {', '.join(known)}, found {topic!r}"))


def _config(path: Path | None, options: Mapping[str, Any]) -> ClientConfig:
    from validator_channel.client.config import ConfigError, load_config

    try:
        return load_config(path, options)
    except ConfigError as error:
        for line in str(error).splitlines():
            _wrong(line)
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
        raise typer.Exit(_wrong(f"{name}: {error.strerror}")) from None


def _check_lines(name: str, stream: BinaryIO) -> None:
    from validator_channel.client.running import BadLine, records

    try:
        for _ in records(name, stream):
            pass
    except BadLine as error:
        raise typer.Exit(_wrong(str(error))) from None
    stream.seek(0)


def _wrong(text: str) -> int:
    typer.echo(f"validator-channel: {printable(text)}", err=True)
    return WRONG
