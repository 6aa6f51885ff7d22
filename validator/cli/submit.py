# SPDX-License-Identifier: Apache-2.0
"""`validator submit`: validates JSON lines, encodes them as Avro and sends them to Kafka."""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from validator import exit_codes
from validator.cli.common import ConfigPath, Json, kafka_table, say
from validator.codec.json_form import encode_input
from validator.config import load_config
from validator.core.limits import RECORD_BYTES_MAX
from validator.errors import UserError
from validator.lanes.configured import protocol_of
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.service.sender import RecordSender
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from validator.config import Config

LINE_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""Bytes of a line: hex doubles the payloads, and the field names are short in comparison."""


def submit(
    kind: Annotated[
        str, typer.Argument(help="blocks, candidates, channel-requests or downward-messages.", metavar="KIND")
    ],
    file: Annotated[str, typer.Argument(help="A file of JSON lines, or - for standard input.", metavar="FILE|-")],
    config_path: ConfigPath = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Report bad lines and send the good ones; exit code 1 if one was bad.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Send records, one JSON object per line, to the topic of their kind. `validator simulate` writes such files.

    Every line is checked, and an error names the line and the field. If a file has a bad line, nothing of it is sent. Standard input is
    sent as it arrives, up to the first bad line. Records go to the configured Kafka, or else to the embedded broker, which must be running.
    If the configuration has chains, a record's lane must be one of them.
    """
    if kind not in INPUT_TOPICS:
        close = get_close_matches(kind, INPUT_TOPICS, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UserError(f"KIND: expected {', '.join(INPUT_TOPICS)}, found {kind!r}{hint}")
    config = load_config(config_path)
    sender = RecordSender(kafka_table(config), config.topics.prefix)
    sender.check(kind)
    submission = _Submission(kind, config, sender, keep_going=keep_going)
    try:
        if file == "-":
            submission.send(sys.stdin.buffer, "standard input")
        else:
            _submit_file(submission, Path(file), keep_going=keep_going)
    finally:
        submission.finish()
    if as_json:
        typer.echo(json.dumps({"kind": kind, "sent": sender.delivered, "bad": submission.bad}))
    else:
        typer.echo(f"{sender.delivered} {kind} sent" + (f", {submission.bad} bad lines" if submission.bad else ""))
    if submission.bad:
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _submit_file(submission: _Submission, path: Path, *, keep_going: bool) -> None:
    try:
        with path.open("rb") as stream:
            if stream.seekable() and not keep_going:
                submission.check(stream, str(path))
                stream.seek(0)
            submission.send(stream, str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


class _Submission:
    """Sends the lines of one input to one topic."""

    def __init__(self, kind: str, config: Config, sender: RecordSender, *, keep_going: bool) -> None:
        self._kind = kind
        self._config = config
        self._lanes = frozenset(config.chains)
        self._sender = sender
        self._keep_going = keep_going
        self.bad = 0
        self._line_number = 0

    def check(self, stream: IO[bytes], name: str) -> None:
        """Raise `UserError` for the first bad line."""
        for number, line in _lines(stream, name):
            self._encode(line, f"{name}, line {number}")

    def send(self, stream: IO[bytes], name: str) -> None:
        """Send line by line. Raises `UserError` for the first bad line, unless ``keep_going``."""
        for number, line in _lines(stream, name):
            try:
                lane, value = self._encode(line, f"{name}, line {number}")
            except UserError as error:
                if not self._keep_going:
                    self._sender.flush()
                    sent = self._sender.delivered
                    raise UserError(f"{error} ({sent} records before it were sent)") from None
                self.bad += 1
                say(f"validator: {error}")
            else:
                self._sender.send(self._kind, lane.encode(), value)

    def finish(self) -> None:
        """Wait for every acknowledgement."""
        self._sender.flush()

    def _encode(self, line: bytes, where: str) -> tuple[str, bytes]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: expected a JSON object, found {_start(line)} ({error})") from None
        try:
            protocol = self._protocol_of(record)
            value = encode_input(codec_of([RuntimePlan(protocol)]), INPUT_TOPICS[self._kind], record, protocol)
            self._check_lane(record["lane"])
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        return record["lane"], value

    def _protocol_of(self, record: Any) -> str:
        """Return the protocol of a record's chain, or the default one if that chain is not configured."""
        lane = record.get("lane") if isinstance(record, dict) else None
        return protocol_of(self._config, lane if isinstance(lane, str) else "")

    def _check_lane(self, lane: str) -> None:
        if self._lanes and lane not in self._lanes:
            close = get_close_matches(lane, self._lanes, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"configured are {', '.join(sorted(self._lanes))}"
            raise UserError(f"lane: no chain {lane!r} is configured; {hint}")


def _lines(stream: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers."""
    for number, line in enumerate(_bounded(stream), start=1):
        if len(line) > LINE_BYTES_MAX:
            raise UserError(f"{name}, line {number}: expected at most {LINE_BYTES_MAX} bytes, found more")
        if line.strip():
            yield number, line


def _bounded(stream: IO[bytes]) -> Iterable[bytes]:
    while line := stream.readline(LINE_BYTES_MAX + 1):
        yield line


def _start(line: bytes) -> str:
    text: Any = line.strip().decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
