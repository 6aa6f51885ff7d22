# SPDX-License-Identifier: Apache-2.0
"""`validator messages`: bodies of XCMP messages, for whoever runs the operator, for recipients and for senders."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from validator.cli.command_api import (
    POLL_S,
    Config,
    ConfigPath,
    Json,
    RecordSender,
    TopicReader,
    UserError,
    connected,
    run_plugin_job,
    say,
    terminated_as_interrupted,
)
from validator.plugin.protocol_api import U32_MAX
from validator_xcmp_bodies import records
from validator_xcmp_bodies.fetch import BodyFetcher
from validator_xcmp_bodies.follow import START, Delivery, Follower, Position
from validator_xcmp_bodies.job import JOB
from validator_xcmp_bodies.parts import BodyError
from validator_xcmp_bodies.sender import Sender

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Bodies of XCMP messages: run the operator, show its queues, follow a recipient's messages, send bodies.",
)

EXIT_ALARM: Final = 1
"""Exit code of `status --check` if a queue raises an alarm."""

Chain = Annotated[str, typer.Option("--chain", help="The relay chain, as in [chains.<lane>].")]
Para = Annotated[int, typer.Option("--para", min=0, max=U32_MAX, help="The para.")]


@app.command()
def run(
    config_path: ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the job's log unchanged, as JSON lines.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Start without a checkpoint on topics that hold output: take the inputs again, emit what is missing.",
        ),
    ] = False,
) -> None:
    """Run the operator of bodies until Ctrl-C or SIGTERM, configured by `[jobs.xcmp-bodies]`.

    It is a separate job next to `validator run`, on the same Kafka. It creates its topics if they are missing. Exit codes have the same
    meaning as with `validator run`.
    """
    run_plugin_job(connected(config_path), JOB, as_json=as_json, rebuild=rebuild)


@app.command()
def status(
    config_path: ConfigPath = None,
    as_json: Json = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with code 1 if any queue raises an alarm.")] = False,
) -> None:
    """Show each recipient's queue: unread and missing messages, the age of the front in blocks, the alarm.

    The age counts from the block in which the front was sent to the last block that the operator knows.
    """
    config = connected(config_path)
    rows = sorted(_statuses(config), key=lambda row: (row["lane"], row["recipient"]))
    if as_json:
        sys.stdout.write("".join(json.dumps(row) + "\n" for row in rows))
    else:
        _print_statuses(rows)
    if check and any(row["alarm"] for row in rows):
        raise typer.Exit(EXIT_ALARM)


@app.command()
def follow(
    chain: Chain,
    para: Para,
    config_path: ConfigPath = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="BLOCK/SENDER", help="Begin after this message: the position of the last one taken."),
    ] = None,
    as_json: Json = False,
    once: Annotated[bool, typer.Option("--once", help="End once everything that is held has been shown.")] = False,
) -> None:
    """Hand over a recipient's messages with their bodies, in the fair order: by block, then by sender.

    Each message has its position. To get each exactly once, store the position together with what you did, and pass it to --after at the
    next start. Without --after it begins with the first message that is not acknowledged. `acks` are the messages that your next candidate
    may acknowledge, `watermark` what the chain then stores.
    """
    config = connected(config_path)
    follower = Follower(_position(after))
    show = _print_json if as_json else _print_line
    with terminated_as_interrupted(), BodyFetcher(config.kafka, config.topics.prefix) as fetcher:
        try:
            for delivery in _followed(config, chain, para, follower, once=once):
                show(chain, delivery, fetcher.payloads(chain, delivery.held))
        except KeyboardInterrupt:
            return
    if once and (waits_for := follower.waits_for()) is not None:
        say(f"the body of {waits_for[0]}/{waits_for[1]} is missing; everything after it waits")


@app.command()
def send(
    chain: Chain,
    para: Para,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="JSON lines, each a body: a list of payloads in hex."),
    ],
    config_path: ConfigPath = None,
    once: Annotated[
        bool, typer.Option("--once", help="End once every listed body has been sent, instead of answering requests.")
    ] = False,
) -> None:
    """Send a para's bodies once the relay chain lists them, and answer requests for those that are missing, until Ctrl-C.

    A body is found by its root and size, so the file does not name recipients or blocks.
    """
    config = connected(config_path)
    sender = _sender(chain, para, files)
    say(f"{len(sender)} bodies of para {para}; waiting for the chain to list them")
    with terminated_as_interrupted():
        try:
            _serve(config, chain, para, sender, once=once)
        except KeyboardInterrupt:
            return


# --- following ---


def _position(text: str | None) -> Position:
    if text is None:
        return START
    block, slash, sender = text.partition("/")
    if not (slash and block.isdecimal() and sender.isdecimal()):
        raise UserError(f"--after: expected BLOCK/SENDER, found {text!r}")
    return int(block), int(sender)


def _followed(config: Config, chain: str, para: int, follower: Follower, *, once: bool) -> Iterator[Delivery]:
    """Read events and held bodies, and yield what becomes deliverable."""
    key = records.key_of(chain, para)
    with (
        TopicReader(config.kafka, config.topics.prefix, [records.INGRESS]) as events,
        TopicReader(config.kafka, config.topics.prefix, [records.HELD]) as bodies,
    ):
        while True:
            for record in bodies.poll(POLL_S):
                if record.key == key:
                    follower.hold(records.decode_held(record.value)[1])
            for record in events.poll(POLL_S):
                lane, event = records.decode_event(record.value)
                if lane == chain and event is not None and event.recipient == para:
                    follower.apply(event)
            if not events.at_end:
                continue
            yield from follower.deliveries(complete=events.caught_up)
            if once and events.caught_up and bodies.caught_up:
                return


def _print_json(chain: str, delivery: Delivery, payloads: list[bytes]) -> None:
    held = delivery.held
    row = {
        "lane": chain,
        "recipient": held.recipient,
        "sent_at": held.sent_at,
        "sender": held.sender,
        "root": held.root.hex(),
        "size": held.size,
        "payloads": [payload.hex() for payload in payloads],
        "position": f"{held.sent_at}/{held.sender}",
        "acks": [list(name) for name in delivery.acks],
        "watermark": {"block": delivery.watermark.block, "acked": list(delivery.watermark.acked)},
    }
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def _print_line(_chain: str, delivery: Delivery, payloads: list[bytes]) -> None:
    held, watermark = delivery.held, delivery.watermark
    acked = f" and {', '.join(map(str, watermark.acked))} at it" if watermark.acked else ""
    sys.stdout.write(
        f"{held.sent_at}/{held.sender}: {len(payloads)} payloads, {held.size} bytes, root {held.root.hex()[:16]}; "
        f"acknowledge {len(delivery.acks)}: everything below {watermark.block}{acked}\n"
    )
    sys.stdout.flush()


# --- status ---


def _statuses(config: Config) -> list[dict[str, Any]]:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    with TopicReader(config.kafka, config.topics.prefix, [records.QUEUES]) as reader:
        for record in reader.read_to_end():
            row = records.decode(records.QUEUES, record.value)
            rows[row["lane"], row["recipient"]] = row
    heights: dict[str, int] = {}
    for row in rows.values():
        heights[row["lane"]] = max(heights.get(row["lane"], 0), row["height"])
    for row in rows.values():
        front = row["front"]
        row["front_age_blocks"] = None if front is None else heights[row["lane"]] - front["sent_at"]
    return list(rows.values())


def _print_statuses(rows: list[dict[str, Any]]) -> None:
    table = Table("chain", "para", "height", "unread", "missing", "waiting bytes", "front", "age", "alarm", box=None)
    for row in rows:
        front = row["front"]
        where = "" if front is None else f"{front['sent_at']}/{front['sender']}{'' if front['held'] else ' (missing)'}"
        numbers = (row["height"], row["unread"], row["missing"], row["waiting_bytes"])
        age = "" if row["front_age_blocks"] is None else str(row["front_age_blocks"])
        alarm = "ALARM" if row["alarm"] else ""
        table.add_row(row["lane"], str(row["recipient"]), *map(str, numbers), where, age, alarm)
    Console(highlight=False, soft_wrap=True).print(table)


# --- sending ---


def _sender(chain: str, para: int, files: list[Path]) -> Sender:
    try:
        return Sender(chain, para, [body for file in files for body in _bodies(file)])
    except BodyError as error:
        raise UserError(str(error)) from error


def _bodies(file: Path) -> Iterator[list[bytes]]:
    try:
        with file.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield _body(line, f"{file}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read: {error}") from error


def _body(line: str, where: str) -> list[bytes]:
    try:
        found = json.loads(line)
        if not isinstance(found, list):
            raise ValueError("not a list")
        return [bytes.fromhex(payload) for payload in found]
    except (ValueError, TypeError) as error:
        raise UserError(f"{where}: expected a list of payloads in hex, found {line.strip()[:60]} ({error})") from None


def _serve(config: Config, chain: str, para: int, sender: Sender, *, once: bool) -> None:
    topics = [records.INGRESS, records.HELD, records.WANTED]
    out = RecordSender(config.kafka, config.topics.prefix)
    out.check(records.BODIES)
    with TopicReader(config.kafka, config.topics.prefix, topics) as reader:
        while True:
            answers = []
            for record in reader.poll(POLL_S):
                if record.topic == records.INGRESS:
                    lane, event = records.decode_event(record.value)
                    if lane == chain and event is not None and event.sender == para:
                        sender.apply(event)
                elif record.topic == records.HELD:
                    lane, held = records.decode_held(record.value)
                    if held.sender == para and lane == chain:
                        sender.note_held(held.recipient, held.sent_at)
                elif record.key == records.key_of(chain, para):
                    answers.append(records.decode_wanted(record.value))
            if not reader.at_end:
                continue
            parts = [*sender.due(), *(part for wanted in answers for part in sender.answer(wanted))]
            for part in parts:
                out.send(part.topic, part.key, part.value)
            out.flush()
            if parts:
                say(f"{len(parts)} parts sent")
            if once and reader.caught_up and not parts:
                return
