# SPDX-License-Identifier: Apache-2.0
"""`validator messages`: run the operator of XCMP messages' bodies, and inspect it; send and follow bodies as a para."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from validator.cli.command_api import (
    POLL_S,
    Config,
    ConfigPath,
    Json,
    RecordSender,
    TopicReader,
    UserError,
    VisibleConsole,
    connected,
    executed_blocks,
    read_line,
    run_plugin_job,
    say,
    terminated_as_interrupted,
    until_first,
    working,
)
from validator.plugin.protocol_api import U32_MAX
from validator_xcmp_bodies import alarms, records
from validator_xcmp_bodies.alarms import aged
from validator_xcmp_bodies.follow import START, Delivery, Follower, MessageName, message_document
from validator_xcmp_bodies.job import JOB, alarm_blocks
from validator_xcmp_bodies.limits import REPORTS_PER_BLOCK, REPORTS_PER_BLOCK_MAX
from validator_xcmp_bodies.outcomes import Held, RecordOffset
from validator_xcmp_bodies.parts import BodyError
from validator_xcmp_bodies.reports import RecordsRemoved, ReportProgress, Wish
from validator_xcmp_bodies.reports import make as make_reports
from validator_xcmp_bodies.sender import SHOWN_CHARACTERS, Content, Sender, body_of, by_content

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Bodies of XCMP messages: run the operator, show its queues, send bodies, follow a recipient's messages, report what is held.",
)

POSITION_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)

FETCH_S_MAX: Final = 60.0
"""Seconds that reading one part may take."""

LOOK_AGAIN_S: Final = 10.0
"""Seconds after which Kafka is asked again about records that it seems to have removed."""

EXIT_ALARM: Final = 1
"""Exit code of `status --check` if a queue raises an alarm."""

Chain = Annotated[str, typer.Option("--chain", help="The relay chain's name.")]
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

    It is a separate job next to `validator run`, on the same Kafka. It creates its topics if they are missing. Its log also says when a
    queue's alarm begins and ends. Exit codes have the same meaning as with `validator run`.
    """
    run_plugin_job(connected(config_path), JOB, as_json=as_json, rebuild=rebuild, side_task=alarms.watch)


@app.command()
def status(
    config_path: ConfigPath = None,
    as_json: Json = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with code 1 if any queue raises an alarm.")] = False,
) -> None:
    """Show each recipient's queue: unread and missing messages, the age of the front in blocks, the alarm.

    The age counts from the block in which the front was sent to the last block that the chain has executed. So --check also notices an
    operator that has stopped, once a front that it last saw is `alarm_blocks` old. `height` is the last block that it has seen.
    """
    config = connected(config_path)
    with working("reading the queues"):
        rows = _statuses(config)
    if as_json:
        sys.stdout.write("".join(json.dumps(row) + "\n" for row in rows))
    else:
        show_statuses(rows)
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
    may acknowledge, `watermark` what the chain then stores. It prints a table on a terminal, otherwise one line per message.
    """
    config = connected(config_path)
    _check_chain(config, chain)
    follower = Follower(_position(after))
    reader = TopicReader(config.kafka, config.topics.prefix, [records.BODIES], tail=0)
    with terminated_as_interrupted(), reader as bodies:
        try:
            deliveries = _followed(config, chain, para, follower, once=once)
            fetched = ([(each, _payloads(bodies, chain, each.held))] for each in deliveries)
            messages = (each for chunk in until_first(fetched, "waiting for messages") for each in chunk)
            show_messages(chain, messages, as_json=as_json, follow=not once)
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
    replica: Annotated[
        bool,
        typer.Option("--replica", help="Only answer the requests that the sender itself has failed to answer."),
    ] = False,
) -> None:
    """Send a para's bodies once the relay chain lists them, and answer requests for those that are missing, until Ctrl-C.

    A body is found by its root and size, so the file does not name recipients or blocks.
    """
    config = connected(config_path)
    _check_chain(config, chain)
    bodies = _read_bodies(files)
    sender = Sender(chain, para, bodies, replica=replica)
    say(f"{len(bodies)} bodies of para {para}{'' if once else '; waiting for the chain to list them'}")
    with terminated_as_interrupted(), working("serving bodies"):
        try:
            _serve(config, chain, para, sender, once=once)
        except KeyboardInterrupt:
            return


@app.command()
def reports(
    chain: Chain,
    block: Annotated[int, typer.Option("--block", min=0, max=U32_MAX, help="The block that is to have the reports.")],
    position: Annotated[
        Path,
        typer.Option("--position", help="A file with the position after the last block's reports; created at first."),
    ],
    config_path: ConfigPath = None,
    first_index: Annotated[
        int,
        typer.Option(
            "--first-index", min=0, max=REPORTS_PER_BLOCK_MAX, help="How many other channel requests the block has."
        ),
    ] = 0,
    reports_max: Annotated[
        int, typer.Option("--max", min=1, max=REPORTS_PER_BLOCK_MAX, help="Maximum reports in the block.")
    ] = REPORTS_PER_BLOCK,
) -> None:
    """Print the bodies that are held since the last block, as lines for `validator submit channel-requests`.

    For whoever produces the blocks of a chain with `require_bodies`. Every held body is reported once. The block's record announces
    `requests` of them, as the file of --position says. Asked again for the same block, the command prints the same lines.
    """
    config = connected(config_path)
    _check_chain(config, chain)
    wish = Wish(chain, block, first_index, min(reports_max, REPORTS_PER_BLOCK_MAX - first_index))
    last = ReportProgress.read(position)
    with working("reading what is held"):
        try:
            lines, made = _reports(config, wish, last)
        except RecordsRemoved:
            time.sleep(LOOK_AGAIN_S)
            lines, made = _reports(config, wish, last)
    made.write(position)  # first: whoever gets a line will get the same ones again
    sys.stdout.write("".join(lines))
    sys.stdout.flush()
    say(f"{made.requests - first_index} reports; block {block} has {made.requests} channel requests")


def _reports(config: Config, wish: Wish, last: ReportProgress | None) -> tuple[list[str], ReportProgress]:
    with TopicReader(config.kafka, config.topics.prefix, [records.HELD], tail=0) as reader:
        return make_reports(wish, last, reader)


def _check_chain(config: Config, chain: str) -> None:
    if config.chains and chain not in config.chains:
        raise UserError(f"--chain: expected one of {', '.join(sorted(config.chains))}, found {chain!r}")


# --- following ---


def _position(text: str | None) -> MessageName:
    if text is None:
        return START
    numbers = [int(each) for each in text.split("/") if POSITION_NUMBER.fullmatch(each)]
    if text.count("/") != 1 or len(numbers) != 2 or max(numbers) > U32_MAX:
        raise UserError(f"--after: expected BLOCK/SENDER, found {text[:80]!r}")
    return numbers[0], numbers[1]


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


# --- held bodies ---


def _payloads(reader: TopicReader, lane: str, held: Held) -> list[bytes]:
    """Return the payloads of a held body. Raises `UserError`: a part is gone, the parts are not the body that is listed."""
    try:
        return records.read_body(lane, held, partial(_value, reader))
    except BodyError as error:
        raise UserError(str(error)) from error


def _value(reader: TopicReader, place: RecordOffset) -> bytes:
    reader.restart(records.BODIES, place.partition, place.offset)
    deadline = time.monotonic() + FETCH_S_MAX
    while time.monotonic() < deadline:
        found: list[Any] = reader.poll(POLL_S)
        if found:
            if found[0].offset == place.offset:
                return bytes(found[0].value)
            break
        if reader.at_end:
            break
    raise UserError(records.gone(place))


# --- status ---


def _statuses(config: Config) -> list[dict[str, Any]]:
    blocks = alarm_blocks(JOB, config.jobs.get(JOB) or {})
    with TopicReader(config.kafka, config.topics.prefix, [records.QUEUES], newest=True) as reader:
        queues = [records.decode(records.QUEUES, record.value) for record in reader.read_to_end()]
    return aged(queues, executed_blocks(config), blocks)


# --- sending ---


def _read_bodies(files: list[Path]) -> dict[Content, Sequence[bytes]]:
    try:
        return by_content(body for file in files for body in _bodies(file))
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
    found = read_line(line.encode(), where)
    try:
        return body_of(found)
    except BodyError as error:
        raise UserError(
            f"{where}: expected a list of payloads in hex, found {line.strip()[:SHOWN_CHARACTERS]} ({error})"
        ) from None


def _serve(config: Config, chain: str, para: int, sender: Sender, *, once: bool) -> None:
    topics = [records.INGRESS, records.HELD, records.WANTED]
    out = RecordSender(config.kafka, config.topics.prefix)
    out.check(records.BODIES)
    sent = 0
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
            sent += len(parts)
            if parts:
                say(f"{len(parts)} parts sent")
            if once and reader.caught_up and not parts:
                if not sent:
                    say("nothing sent: the chain lists none of the bodies that is not held")
                return


# --- showing ---


Message: TypeAlias = tuple[Delivery, list[bytes]]
"""What is handed over, and the payloads of its body."""

COLUMNS: Final = ("block", "sender", "payloads", "bytes", "root", "acks", "watermark", "acked at it")
TABLE_FRAME_LINES: Final = 3
"""Lines of a terminal that the rows of a live table leave free."""


def show_messages(
    lane: str, messages: Iterable[Message], *, as_json: bool, follow: bool, console: Console | None = None
) -> None:
    """Show a recipient's messages as they come; ``follow`` redraws the table for each, else it is printed at the end."""
    console = VisibleConsole() if console is None else console
    if as_json:
        _print(json.dumps(message_document(lane, *message)) for message in messages)
    elif not console.is_terminal:
        _print(_line(*message) for message in messages)
    elif follow:
        _show_live(messages, console)
    else:
        console.print(_table(_cells(*message) for message in messages))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _show_live(messages: Iterable[Message], console: Console) -> None:
    rows: deque[tuple[str, ...]] = deque(maxlen=max(1, console.height - TABLE_FRAME_LINES))
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for message in messages:
            rows.append(_cells(*message))
            live.update(_table(rows), refresh=True)


def _line(delivery: Delivery, payloads: list[bytes]) -> str:
    held, watermark = delivery.held, delivery.watermark
    acked = f" and {', '.join(map(str, watermark.acked))} at it" if watermark.acked else ""
    return (
        f"{held.sent_at}/{held.sender}: {len(payloads)} payloads, {held.size} bytes, root {held.root.hex()[:16]}; "
        f"acknowledge {len(delivery.acks)}: everything below {watermark.block}{acked}"
    )


def _cells(delivery: Delivery, payloads: list[bytes]) -> tuple[str, ...]:
    held, watermark = delivery.held, delivery.watermark
    numbers = (held.sent_at, held.sender, len(payloads), held.size)
    rest = (f"{held.root.hex()[:16]}...", str(len(delivery.acks)), str(watermark.block))
    return (*map(str, numbers), *rest, ", ".join(map(str, watermark.acked)))


def _table(rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in COLUMNS:
        left = name in ("root", "acked at it")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def show_statuses(rows: list[dict[str, Any]]) -> None:
    """Print a table of queues."""
    table = Table("chain", "para", "height", "unread", "missing", "waiting bytes", "front", "age", "alarm", box=None)
    for row in rows:
        front = row["front"]
        where = "" if front is None else f"{front['sent_at']}/{front['sender']}{'' if front['held'] else ' (missing)'}"
        numbers = (row["height"], row["unread"], row["missing"], row["waiting_bytes"])
        age = "" if row["front_age_blocks"] is None else str(row["front_age_blocks"])
        alarm = "ALARM" if row["alarm"] else ""
        table.add_row(row["lane"], str(row["recipient"]), *map(str, numbers), where, age, alarm)
    VisibleConsole(soft_wrap=True).print(table)
