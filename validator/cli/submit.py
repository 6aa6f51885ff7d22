# SPDX-License-Identifier: Apache-2.0
"""`validator submit`: validates JSON lines, encodes them as Avro and sends them to Kafka."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from validator import exit_codes
from validator.cli.common import (
    ConfigPath,
    Json,
    connected,
    did_you_mean,
    lines,
    opened,
    parse,
    print_json,
    say,
    terminated_as_interrupted,
)
from validator.cli.progress import working
from validator.codec.json_form import encode_input
from validator.config.explain import no_chain
from validator.errors import UserError
from validator.job.orders import lane_reports
from validator.kafka.sender import RecordSender
from validator.lanes.configured import protocol_of
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from validator.config import Config

SPANS_SHOWN_MAX: Final = 8
"""Spans of lines that an error lists; of further ones it has the number of lines."""


def submit(
    kind: Annotated[
        str,
        typer.Argument(
            help="blocks, candidates, channel-requests or downward-messages.",
            metavar="KIND",
            autocompletion=lambda: list(INPUT_TOPICS),
        ),
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

    If Kafka refuses a record, and after Ctrl-C or SIGTERM (exit code 130), a line says how many records were sent and which lines Kafka has
    not acknowledged. Send the same lines again then: a record that arrives twice counts once.

    Examples:

    - `validator submit blocks blocks.jsonl` sends a file
    - `validator submit candidates - < candidates.jsonl` sends what a program prints, line by line
    - `validator submit candidates candidates.jsonl --keep-going --json` reports bad lines as JSON
    """
    if kind not in INPUT_TOPICS:
        hint = did_you_mean(kind, INPUT_TOPICS)
        raise UserError(f"KIND: expected {', '.join(INPUT_TOPICS)}, found {kind!r}{hint}")
    config = connected(config_path)
    sender = RecordSender(config.kafka, config.topics.prefix)
    sender.check(kind)
    submission = _Submission(kind, config, sender, keep_going=keep_going)
    with working(f"sending {kind}"), terminated_as_interrupted():
        try:
            submission.heights = _heights(config)
            if file == "-":
                submission.send(sys.stdin.buffer, "standard input")
            else:
                _submit_file(submission, Path(file), keep_going=keep_going)
        except KeyboardInterrupt:
            say(f"validator: interrupted: {submission.outcome()}")
            raise typer.Exit(exit_codes.INTERRUPTED) from None
    if as_json:
        late = sum(submission.late.values())
        print_json({"kind": kind, "sent": sender.delivered, "bad": submission.bad, "of_executed_blocks": late})
    else:
        typer.echo(f"{sender.delivered} {kind} sent" + (f", {submission.bad} bad lines" if submission.bad else ""))
    for lane, late in submission.late.items():
        of = f"{late} of the records {'is' if late == 1 else 'are'} of blocks up to it"
        say(
            f"validator: lane {lane} has executed block {submission.heights[lane]}: {of}, so each is a duplicate or a dead letter; "
            "see `validator lanes`"
        )
    if submission.bad:
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _heights(config: Config) -> dict[str, int]:
    """Return the last executed block by lane; empty if the user may not read the topic, or there is none."""
    with suppress(UserError):
        statuses = lane_reports(config).statuses
        return {lane: each["executed_block"] for lane, each in statuses.items() if each["executed_block"] is not None}
    return {}


def _submit_file(submission: _Submission, path: Path, *, keep_going: bool) -> None:
    with opened(str(path)) as (stream, name):
        if stream.seekable() and not keep_going:
            submission.check(stream, name)
            stream.seek(0)
        submission.send(stream, name)


class _Submission:
    """Sends the lines of one input to one topic."""

    def __init__(self, kind: str, config: Config, sender: RecordSender, *, keep_going: bool) -> None:
        self._kind = kind
        self._config = config
        self._lanes = frozenset(config.chains)
        self._sender = sender
        self._keep_going = keep_going
        self.bad = 0
        self._unsent: dict[int, None] = {}
        """Lines that Kafka has not acknowledged, ascending."""
        self._last = 0
        """The last line that was taken."""
        self._at_end = False
        self.heights: Mapping[str, int] = {}
        """By lane, the last executed block before the first record is sent."""
        self.late = Counter[str]()
        """By lane, how many records were of blocks up to it."""

    def check(self, stream: IO[bytes], name: str) -> None:
        """Raise `UserError` for the first bad line."""
        for number, line in lines(stream, name):
            self._encode(line, f"{name}, line {number}")

    def send(self, stream: IO[bytes], name: str) -> None:
        """Send line by line, and wait for every acknowledgement.

        Raises `UserError` for the first bad line, unless ``keep_going``, and if Kafka does not take a record; it says what was sent.
        """
        for number, line in lines(stream, name):
            where = f"{name}, line {number}"
            try:
                lane, block, value = self._encode(line, where)
            except UserError as error:
                if not self._keep_going:
                    self._settled(self._sender.flush)
                    raise UserError(f"{error} ({self._sender.delivered} records before it were sent)") from None
                self.bad += 1
                say(f"validator: {error}")
            else:
                self._last = number
                if block <= self.heights.get(lane, -1):
                    self.late[lane] += 1
                self._unsent[number] = None
                sent = partial(self._unsent.pop, number)
                self._settled(partial(self._sender.send, self._kind, lane.encode(), value, where, sent))
        self._at_end = True
        self._settled(self._sender.flush)

    def outcome(self) -> str:
        """Give up what Kafka has not acknowledged, and say what was sent and what was not."""
        with suppress(UserError):
            self._sender.give_up()
        sent = self._sender.delivered
        said = [f"{sent} {'record was' if sent == 1 else 'records were'} sent"]
        if self._unsent:
            said.append(f"not acknowledged: {_spans(self._unsent)}")
        if not self._at_end:
            said.append(f"nothing after line {self._last} was sent" if self._last else "nothing else was sent")
        return "; ".join(said)

    def _settled(self, call: Callable[[], object]) -> None:
        """Call the sender. If it fails, say what became of the lines."""
        try:
            call()
        except UserError as error:
            raise UserError(f"{error} ({self.outcome()})") from error

    def _encode(self, line: bytes, where: str) -> tuple[str, int, bytes]:
        record = parse(line, where)
        try:
            protocol = self._protocol_of(record)
            value = encode_input(codec_of([RuntimePlan(protocol)]), INPUT_TOPICS[self._kind], record, protocol)
            self._check_lane(record["lane"])
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        return record["lane"], record["block"], value

    def _protocol_of(self, record: Any) -> str:
        """Return the protocol of a record's chain, or the default one if that chain is not configured."""
        lane = record.get("lane") if isinstance(record, dict) else None
        return protocol_of(self._config, lane if isinstance(lane, str) else "")

    def _check_lane(self, lane: str) -> None:
        if self._lanes and lane not in self._lanes:
            raise UserError(f"lane: {no_chain(lane, self._lanes)}")


def _spans(numbers: Iterable[int]) -> str:
    """Return ascending numbers of lines in words."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in spans[:SPANS_SHOWN_MAX])
    more = sum(last - first + 1 for first, last in spans[SPANS_SHOWN_MAX:])
    word = "line" if len(spans) == 1 and spans[0][0] == spans[0][1] else "lines"
    return f"{word} {shown}" + (f" and {more} more" if more else "")
