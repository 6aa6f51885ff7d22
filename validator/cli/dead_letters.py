# SPDX-License-Identifier: Apache-2.0
"""`validator dead-letters list|show|replay`: records that no block will take, and how to put them back once they are fixed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from validator import exit_codes
from validator.cli.common import (
    ConfigPath,
    Json,
    connected,
    did_you_mean,
    drop_output,
    kafka_table,
    say,
    terminated_as_interrupted,
)
from validator.cli.lanes import lane_statuses
from validator.cli.progress import working
from validator.cli.table import FittedTable, PlainTable, VisibleConsole
from validator.config import load_config
from validator.core.inputs import DeadReason
from validator.errors import UserError
from validator.hexadecimal import to_hex
from validator.letters.dead_letters import (
    Filter,
    LetterReader,
    Replay,
    completed,
    decoded,
    read_ledger,
    read_repaired,
    replay_json,
    summary,
)
from validator.letters.replayer import (
    TRANSACTION_BYTES_MAX,
    TRANSACTION_RECORDS_MAX,
    Declined,
    Replayer,
    Task,
    judge,
    pointless,
)
from validator.visible import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.config import Config
    from validator.letters.dead_letters import StoredLetter

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List and show dead letters (records that no block will ever take), and replay them once the cause is fixed.",
)

Lane = Annotated[str | None, typer.Option(help="Only this lane.")]
Reason = Annotated[str | None, typer.Option(help=f"Only this reason: {', '.join(DeadReason.__members__)}.")]

_HEADINGS: Final = (
    "place", "time", "lane", "reason", "read from", "block", "index", "attempt", "replayed as", "detail",
)  # fmt: skip
SHOWN_CHARACTERS_MAX: Final = 4096
"""Characters of a decoded record that `show` prints."""

DUMPED_BYTES_MAX: Final = 2048
"""Bytes that `show` dumps; longer dumps belong in a file."""

_NUMBERS: Final = frozenset({"block", "index"})


@app.command("list")
def list_(
    lane: Lane = None,
    reason: Reason = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Only this many dead letters, the newest ones.")] = None,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """List all dead letters, oldest first, and count them by reason.

    The column "attempt" shows the number of the next replay and the maximum.
    """
    wanted = Filter(lane, _reason(reason))
    config = load_config(config_path)
    kafka, prefix = kafka_table(config), config.topics.prefix
    counts: Counter[str] = Counter()

    def rows(reader: LetterReader) -> Iterator[dict[str, Any]]:
        for letter in reader.letters():
            if wanted.takes(letter):
                counts[letter.reason] += 1
                yield summary(letter, ledger)

    def age(row: dict[str, Any]) -> tuple[int, list[int]]:
        return row["timestamp_ms"], [int(number) for number in row["place"].split("/")]

    with terminated_as_interrupted(), LetterReader(kafka, prefix, _say) as reader:
        ledger = read_ledger(kafka, prefix)
        with working("reading the dead letters"):
            listed = sorted(rows(reader) if limit is None else nlargest(limit, rows(reader), key=age), key=age)
    if as_json:
        _write("".join(json.dumps(row) + "\n" for row in listed))
    else:
        _print(listed, counts, config)


def _print(listed: list[dict[str, Any]], counts: Counter[str], config: Config) -> None:
    console = VisibleConsole()
    rows = [_row(row, config.dead_letters.attempts_max) for row in listed]
    if console.is_terminal:
        used = [at for at in range(len(_HEADINGS)) if any(row[at] for row in rows)]
        cells = [[row[at] for at in used] for row in rows]
        console.print(FittedTable([_HEADINGS[at] for at in used], cells, _NUMBERS))
    else:
        _write(PlainTable(_HEADINGS, _NUMBERS).lines(rows) if rows else "")
    by_reason = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    shown = f" (the last {len(rows)} shown)" if len(rows) < counts.total() else ""
    _write(
        f"{counts.total()} dead letter{'' if counts.total() == 1 else 's'}{f': {printable(by_reason)}' if by_reason else ''}{shown}\n"
    )


def _row(row: dict[str, Any], attempts_max: int) -> tuple[str, ...]:
    replayed = row["replayed"]
    cells = (
        row["place"],
        time(row["timestamp_ms"]),
        row["lane"],
        row["reason"],
        where(row),
        *("" if row[name] is None else str(row[name]) for name in ("block", "index")),
        f"{row['attempt']} of {attempts_max}" if row["attempt"] <= attempts_max else f"all {attempts_max} used",
        "" if replayed is None else where(replayed),
        row["detail"],
    )
    return tuple(map(printable, cells))


@app.command()
def show(
    place: Annotated[
        str, typer.Argument(metavar="PLACE", help="OFFSET, or PARTITION/OFFSET, as listed by `dead-letters list`.")
    ],
    raw: Annotated[
        Path | None, typer.Option("--raw", metavar="FILE", help="Also write the record's bytes to a file.")
    ] = None,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Show one dead letter: the reason, its bytes, what they decode to now (or why they do not), and its replays so far.

    With --json, the key `record` holds the decoded record. Once it is fixed, put it back with `replay --as FILE.json`.
    """
    config = load_config(config_path)
    kafka, prefix = kafka_table(config), config.topics.prefix
    with terminated_as_interrupted(), working("reading the dead letters"), LetterReader(kafka, prefix, _say) as reader:
        letter = reader.get(reader.place(place))
        ledger = read_ledger(kafka, prefix)
        history = reader.history(letter, ledger)
    if raw is not None:
        try:
            raw.write_bytes(completed(letter, kafka).raw)
        except OSError as error:
            raise UserError(f"{raw}: cannot be written: {error.strerror}") from error
    row = summary(letter, ledger)
    record, problem = decoded(letter, letter.raw, config) if letter.whole is None else (None, None)
    if as_json:
        extra = {
            "history": list(map(replay_json, history)),
            "record": record,
            "problem": problem,
            "raw": to_hex(letter.raw),
        }
        _write(json.dumps(row | extra) + "\n")
        return
    lines = [
        f"{name:<10}  {cell}"
        for name, cell in zip(_HEADINGS, _row(row, config.dead_letters.attempts_max), strict=True)
        if cell
    ]
    lines += [f"{'history':<10}  {_history_line(replay)}" for replay in history]
    lines += [f"{'decodes to':<10}  {_cut(printable(json.dumps(record)))}"] if record is not None else []
    lines += [f"{'now':<10}  {printable(problem)}"] if problem else []
    lines += [f"{'bytes':<10}  {letter.size}{_what_is_kept(letter)}", *hex_dump(letter.raw)]
    _write("\n".join(lines) + "\n")


def _what_is_kept(letter: StoredLetter) -> str:
    if letter.whole is None:
        return ""
    digest = "" if letter.whole.hash is None else f" BLAKE2b-256 of all is {to_hex(letter.whole.hash)};"
    return (
        f": too many to keep, so here are the first and last {len(letter.raw) // 2};{digest} --raw FILE fetches them from where they "
        "were read"
    )


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}... (--json shows all of it)"


def _history_line(replay: Replay) -> str:
    what = f"put back {replay.letter}{' with other bytes' if replay.repaired else ''}"
    return f"attempt {replay.attempt}, {time(replay.timestamp_ms)}: {what} as {where(replay.record._asdict())}"


def hex_dump(data: bytes) -> list[str]:
    """Return lines with an offset, 16 bytes in hex and their ASCII characters, for at most `DUMPED_BYTES_MAX` bytes."""
    lines = []
    for start in range(0, min(len(data), DUMPED_BYTES_MAX), 16):
        row = data[start : start + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  |{text}|")
    if len(data) > DUMPED_BYTES_MAX:
        lines.append(f"... and {len(data) - DUMPED_BYTES_MAX} more bytes: --raw FILE writes all of them")
    return lines


@app.command()
def replay(
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="PLACE", help="OFFSET, or PARTITION/OFFSET, as listed by `dead-letters list`."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay all dead letters of --lane and --reason.")] = False,
    lane: Lane = None,
    reason: Reason = None,
    repaired: Annotated[
        Path | None,
        typer.Option(
            "--as",
            metavar="FILE",
            help="Send the bytes of FILE instead, for one PLACE. FILE.json holds a record as for `validator submit`.",
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also replay records that were already put back.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also replay records that would be dead on arrival.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, and which replays are pointless.")
    ] = False,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Put records back on the topics that they came from, once the cause is fixed.

    A record that would still be dead on arrival is refused. So is one that was put back `[dead_letters] attempts_max` times. A record that
    was already put back is skipped. Each record and its count are one transaction: if a replay was killed, run it again. Exit code 1 if
    a dead letter was refused, whether it was named or is one of --all.
    """
    if bool(places) == everything:
        raise UserError(f"expected PLACE or --all, found {'both' if places else 'neither'}")
    if (lane is not None or reason is not None) and not everything:
        raise UserError("--lane and --reason need --all, found them with PLACE")
    if repaired is not None and len(places or ()) != 1:
        raise UserError(f"--as: expected exactly one PLACE, found {len(places or ()) or '--all'}")
    wanted = Filter(lane, _reason(reason))
    config = connected(config_path)
    prefix = config.topics.prefix
    report = _Report(config.dead_letters.attempts_max, as_json=as_json)
    with ExitStack() as stack:
        stack.enter_context(terminated_as_interrupted())
        stack.enter_context(report.interrupted())
        stack.enter_context(working("reading the dead letters"))
        reader = stack.enter_context(LetterReader(config.kafka, prefix, _say))
        asked = [reader.get(place) for place in dict.fromkeys(map(reader.place, places or ()))]
        raw = None if repaired is None else read_repaired(repaired, asked[0], config)
        replayer = None if dry_run else stack.enter_context(Replayer(config.kafka, prefix))
        ledger = read_ledger(config.kafka, prefix)  # after creating the replayer, since then no other one adds to it
        statuses = lane_statuses(config) if dry_run else {}
        executed = {name: status["executed_block"] for name, status in statuses.items()}
        waiting: list[Task] = []

        def put_back() -> None:
            if replayer is not None and waiting:
                for entry in replayer.send(waiting):
                    ledger.add(entry)
                    report.replayed(entry)
            waiting.clear()

        for letter in asked or filter(wanted.takes, reader.letters()):
            judged = judge(letter, ledger, config, repaired=raw, again=again, force=force)
            if isinstance(judged, Declined):
                report.declined(judged)
            elif dry_run:
                report.would_be_replayed(judged, pointless(letter, judged.raw, config, executed))
            else:
                waiting.append(judged)
                size = sum(len(task.raw) for task in waiting)
                if len(waiting) >= TRANSACTION_RECORDS_MAX or size >= TRANSACTION_BYTES_MAX:
                    put_back()
        put_back()
    report.summary()
    if report.counts["refused"]:
        raise typer.Exit(exit_codes.DISAGREEMENT)


class _Report:
    """Prints the outcome of each dead letter and counts the outcomes."""

    def __init__(self, attempts_max: int, *, as_json: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._attempts_max = attempts_max
        self._as_json = as_json

    def replayed(self, entry: Replay) -> None:
        self._print(
            "replayed",
            {"place": str(entry.letter), "outcome": "replayed", "attempt": entry.attempt, **entry.record._asdict()},
            f"{entry.letter}  replayed as {where(entry.record._asdict())}, attempt {entry.attempt} of {self._attempts_max}",
        )

    def would_be_replayed(self, task: Task, pointless: str | None) -> None:
        self._print(
            "would be replayed",
            {
                "place": str(task.letter),
                "outcome": "would be replayed",
                "attempt": task.attempt,
                "topic": task.topic,
                "pointless": pointless,
            },
            f"{task.letter}  would be replayed to {task.topic}, attempt {task.attempt} of {self._attempts_max}"
            + (f"; pointless: {printable(pointless)}" if pointless else ""),
        )

    def declined(self, declined: Declined) -> None:
        letter, outcome, why = declined
        self._print(
            outcome,
            {"place": str(letter), "outcome": outcome, "why": why},
            f"{letter}  {outcome}: {printable(why)}",
            error=outcome == "refused",
        )

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Say after Ctrl-C or SIGTERM what was put back, and end with the exit code for it."""
        try:
            yield
        except KeyboardInterrupt:
            done = self.counts["replayed"]
            say(f"validator: interrupted: {done} put back; the others may be: run it again, it skips those that are")
            raise typer.Exit(exit_codes.INTERRUPTED) from None

    def summary(self) -> None:
        if not self._as_json and self.counts.total() != 1:
            words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items()))
            _write(f"{words or 'no dead letter matches'}\n")

    def _print(self, outcome: str, record: dict[str, Any], line: str, *, error: bool = False) -> None:
        self.counts[outcome] += 1
        if self._as_json:
            _write(json.dumps(record) + "\n")
        elif error:
            _say(f"dead letter {line}")
        else:
            _write(line + "\n")


def where(record: dict[str, Any]) -> str:
    """Format a place in Kafka as `watch` does."""
    return f"{record['topic']}[{record['partition']}]@{record['offset']}"


def time(timestamp_ms: int) -> str:
    """Format Unix time for people, in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _reason(reason: str | None) -> str | None:
    if reason is None or reason.upper() in DeadReason.__members__:
        return reason and reason.upper()
    hint = did_you_mean(reason.upper(), DeadReason.__members__)
    raise UserError(f"--reason: expected {', '.join(DeadReason.__members__)}, found {reason!r}{hint}")


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the replay continues
        drop_output()


def _say(text: str) -> None:
    say(f"validator: {text}")
