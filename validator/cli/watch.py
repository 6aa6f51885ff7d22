# SPDX-License-Identifier: Apache-2.0
"""`validator watch`: shows an output topic, or a topic of a plugin, as a live table or as JSON lines."""

from __future__ import annotations

import itertools
import json
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from validator import exit_codes
from validator.cli.common import (
    ConfigPath,
    Json,
    did_you_mean,
    drop_output,
    kafka_table,
    print_json,
    say,
    terminated_as_interrupted,
)
from validator.cli.progress import until_first, working
from validator.cli.rows import ACCEPTED, COLUMNS, HASH_CHARACTERS, NUMBERS, REJECTED, ROWS, Row, shortened
from validator.cli.table import FittedTable, PlainTable, VisibleConsole, cut, print_table
from validator.client.topics import ReadableTopic, RuleNames, output_topic, plugins_topics, readable_topics
from validator.codec.framing import framed_id
from validator.config import load_config
from validator.config.explain import no_chain
from validator.errors import UserError
from validator.hexadecimal import PREFIX
from validator.kafka.reader import TopicReader
from validator.record_filter import RecordFilter
from validator.visible import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from validator.config import Config
    from validator.job.orders import Waits
    from validator.kafka.reader import TopicRecord


TAIL_FOLLOWING: Final = 20
"""Earlier records that `--follow` begins with by default."""

ALIGNED_RECORDS: Final = 1_000
"""Records of one topic that are gathered before they are written to a pipe, to align their columns; not with `--follow`."""

_STYLES: Final = {ACCEPTED: "green", REJECTED: "bold red", "opened": "bold green", "closed": "bold yellow"}


def watch(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]",
            help=f"{', '.join(COLUMNS)}, or a topic of a plugin. Without it: list what there is.",
            autocompletion=lambda: list(COLUMNS),
        ),
    ] = None,
    config_path: ConfigPath = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records until Ctrl-C.")] = False,
    as_json: Json = False,
    reject_only: Annotated[bool, typer.Option("--reject-only", help="Only rejected verdicts.")] = False,
    error: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="Only verdicts with this error, such as OutboundHrmp/NoSuchChannel or OutboundHrmp."
        ),
    ] = None,
    para: Annotated[int | None, typer.Option(min=0, help="Only records about this para.")] = None,
    lane: Annotated[str | None, typer.Option(help="Only this lane.")] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the first record, even with --follow.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option(min=0, help="Begin with this many last records of each partition, counting those that are shown."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Wait for this many records, show them and end.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="End after this time; with --count and too few records, with exit code 1."
        ),
    ] = None,
) -> None:
    """Show the records of an output topic: all of them, or with --follow the last ones and then new ones as they arrive.

    Prints a table, whose lines a pipe gets in full; with --json, one object per line. Only committed records are shown. --count begins with
    the first record unless --tail is given, and waits for records that are not there yet, saying on standard error why after some seconds.
    Topics of plugins' transports and jobs can be watched, too; without TOPIC the command lists all. `validator explain ERROR` says in a
    sentence what the error of a row means and what to do.

    Examples:

    - `validator watch verdicts --follow` shows new verdicts until Ctrl-C
    - `validator watch verdicts --reject-only --para 2000` shows why candidates of para 2000 were refused
    - `validator watch headroom --json --count 10` prints ten records as JSON
    """
    config = load_config(config_path)
    if topic is None:
        _list(config, as_json=as_json)
        return
    shown = watched(topic, config)
    if reject_only and topic != "verdicts":
        raise UserError(f"--reject-only needs the topic verdicts, found it with {topic}")
    if error is not None and topic != "verdicts":
        raise UserError(f"--error needs the topic verdicts, found it with {topic}")
    if para is not None and not shown.topic.has_para:
        raise UserError(f"--para: {topic} do not belong to a para; --lane LANE shows those of one lane")
    if from_beginning and tail is not None:
        raise UserError("expected --from-beginning or --tail, found both")
    if tail is None and follow and not from_beginning:
        tail = TAIL_FOLLOWING
    if (
        lane is not None and config.chains and lane not in config.chains
    ):  # the topic may still have records of a lane that was removed
        say(f"validator: --lane: {no_chain(lane, config.chains)}")
    wanted = RecordFilter(lane=lane, para=para, rejected=reject_only, error=error)
    with (
        terminated_as_interrupted(),
        TopicReader(kafka_table(config), config.topics.prefix, [topic], missing=shown.topic.missing) as reader,
    ):
        try:
            if tail is not None:
                begin_with_last(reader, topic, tail, _selects(wanted, shown))
            framed = FramedRecords(config.schema_registry.url)
            waited = _Waited(config, topic, wanted, count, timeout)
            chunks = waited.bounded(_chunks(reader, shown, waited, framed, follow=follow or count is not None))
            if as_json and topic == "verdicts":
                rules = RuleNames({name: chain.protocol for name, chain in config.chains.items()})
                chunks = ([rules.add(record) for record in chunk] for chunk in chunks)
            _show(shown, chunks, as_json=as_json, follow=follow, waited=waited)
            sys.stdout.flush()
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            drop_output()
            return
    if words := waited.none_of_para():
        say(f"validator: {topic}: {words}")
    if waited.lacking:
        say(f"validator: {topic}: after {timeout:g} s {waited.why()}")
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _list(config: Config, *, as_json: bool) -> None:
    with working("looking at the plugins"):
        rows = watchable(config)
    if as_json:
        print_json(*rows)
        return
    table = Table(Column("topic", no_wrap=True), "written by", "purpose", box=None)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row.values()))
    print_table(table)


def _selects(wanted: RecordFilter, shown: Watched) -> Callable[[TopicRecord], bool]:
    """Return whether a record as Kafka has it is wanted; one that cannot be decoded is not wanted by a filter."""
    if wanted == RecordFilter():
        return lambda _: True

    def selects(record: TopicRecord) -> bool:
        try:
            return wanted.takes(shown.topic.decode(record.value))
        except UserError:
            return False

    return selects


def _chunks(
    reader: TopicReader, shown: Watched, waited: _Waited, framed: FramedRecords, *, follow: bool
) -> Iterator[list[dict[str, Any]]]:
    while True:
        records = []
        for read in reader.poll(0.2):
            try:
                record = shown.topic.decode(read.value)
            except UserError as error:  # a foreign record; show the others
                if not framed.takes(read):
                    say(f"validator: {read.topic}[{read.partition}]@{read.offset}: {error}")
                continue
            waited.read += 1
            if waited.wanted.takes(record):
                records.append(record)
        yield records
        if reader.at_end and not follow:
            framed.end()
            return
        _check_reader()


class _Waited:
    """How many records a command waits for, how long, and why there are no more."""

    def __init__(
        self, config: Config, topic: str, wanted: RecordFilter, count: int | None, timeout_s: float | None
    ) -> None:
        self._config, self._topic, self._count = config, topic, count
        self.wanted, self.read = wanted, 0
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._found = 0

    def bounded(self, chunks: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
        """Yield the records until there are enough of them, or the time is over."""
        for chunk in chunks:
            taken = chunk if self._count is None else chunk[: self._count - self._found]
            self._found += len(taken)
            yield taken
            if self._found == self._count or (self._deadline_s is not None and time.monotonic() >= self._deadline_s):
                return

    @property
    def lacking(self) -> bool:
        """Whether there are fewer records than were to be waited for."""
        return self._count is not None and self._found < self._count

    def none_of_para(self) -> str:
        """Return in words that none of the records read is about the para that is wanted; empty if one is."""
        if self.wanted.para is None or self._found or not self.read:
            return ""
        return f"no record of para {self.wanted.para} among the {self.read:,} read"

    def why(self) -> str:
        """Return in words how many records are there, and what the lanes wait for. Raises `UserError`."""
        of = "no record yet" if self._count is None else f"{self._found} of {self._count} records"
        if words := self.none_of_para():
            of += f": {words}"
        return of if self._topic not in ROWS else f"{of}; {self._waits().words}"

    def stuck(self) -> str:
        """Return in words why nothing more comes although records are there or a lane is parked; empty otherwise. Raises `UserError`."""
        waits = None if self._topic not in ROWS else self._waits()
        return waits.words if waits is not None and waits.is_stuck else ""

    def _waits(self) -> Waits:
        from validator.job.orders import why_lanes_wait  # slow to import

        return why_lanes_wait(self._config.model_copy(update={"kafka": kafka_table(self._config)}), self.wanted.lane)


def _check_reader() -> None:
    """Raise `BrokenPipeError` if nobody reads standard output any more. Writing would show it too, but no further record may arrive."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # not a file, as in tests
        return
    poll = select.poll()
    poll.register(output, 0)
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        raise BrokenPipeError


def _show(
    shown: Watched, chunks: Iterable[list[dict[str, Any]]], *, as_json: bool, follow: bool, waited: _Waited
) -> None:
    console = VisibleConsole()
    if console.is_terminal and not as_json and not follow:
        with working(f"reading {shown.topic.name}", waited.why):
            rows = [shown.row(record) for chunk in chunks for record in chunk]
        console.print(_table(shown, rows))
        return
    what = f"waiting for {shown.topic.name}"
    first_only = follow or sys.stderr.isatty()  # a spinner would stay over what is printed
    with nullcontext() if first_only else working(what, waited.why):
        chunks = until_first(chunks, what, waited.why, waited.stuck) if first_only else chunks
        if as_json:
            for chunk in chunks:
                print_json(*chunk)
                sys.stdout.flush()
        elif not console.is_terminal:
            plain = PlainTable(shown.columns, shown.numbers)
            for chunk in chunks if follow else _gathered(chunks):
                sys.stdout.write(plain.lines(shown.row(record) for record in chunk))
                sys.stdout.flush()
        else:
            _show_live(shown, chunks, console)


def _gathered(chunks: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """Yield chunks of at least `ALIGNED_RECORDS`, so that the columns of a short table do not depend on when its records arrive."""
    gathered: list[dict[str, Any]] = []
    for chunk in chunks:
        gathered += chunk
        if len(gathered) >= ALIGNED_RECORDS:
            yield gathered
            gathered = []
    yield gathered


def _show_live(shown: Watched, chunks: Iterable[list[dict[str, Any]]], console: Console) -> None:
    rows: deque[tuple[str, ...]] = deque(maxlen=500)
    chunks = iter(chunks)
    first = next((chunk for chunk in chunks if chunk), [])  # the screen begins once it has something to show
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for chunk in itertools.chain([first], chunks):
            rows.extend(shown.row(record) for record in chunk)
            last = list(rows)[-max(1, console.height - 3) :]
            live.update(_table(shown, last, one_line=True), refresh=True)


def _table(shown: Watched, rows: Sequence[tuple[str, ...]], *, one_line: bool = False) -> FittedTable:
    short = [shown.short(row) for row in rows]
    return FittedTable(shown.columns, short, shown.numbers, one_line=one_line, style=_style)


def _style(cell: str) -> str:
    return _STYLES.get(cell, "")


FURTHER_OFFSETS: Final = 16
"""Offsets that are looked at first besides as many as records are wanted; each further look is eight times as long."""
FURTHER_OFFSETS_MAX: Final = 100_000
"""Offsets that are looked at in the end. Beyond them a partition begins with the records that were found."""


def begin_with_last(
    reader: TopicReader, topic: str, records: int, selects: Callable[[TopicRecord], bool] = lambda _: True
) -> None:
    """Let a reader of one topic continue with the last ``records`` selected committed records of each partition.

    Raises as `TopicReader` does.
    """
    spans = {partition: span for (name, partition), span in reader.spans().items() if name == topic}
    starts = {partition: end for partition, (_, end) in spans.items()}
    further = FURTHER_OFFSETS
    looked_at = set(spans) if records else set()
    while looked_at:
        first = {each: max(spans[each][0], spans[each][1] - records - further) for each in looked_at}
        reader.start_at({(topic, each): offset for each, offset in first.items()})
        found = {each: deque[int](maxlen=records) for each in looked_at}
        for record in reader.read_to_end():
            if record.offset < spans[record.partition][1] and selects(record):
                found[record.partition].append(record.offset)
        for each, offsets in found.items():
            starts[each] = offsets[0] if offsets else spans[each][1]
            if len(offsets) == records or first[each] == spans[each][0] or further == FURTHER_OFFSETS_MAX:
                looked_at.remove(each)
        further = min(8 * further, FURTHER_OFFSETS_MAX)
    reader.start_at({(topic, each): offset for each, offset in starts.items()})


CELL_CHARACTERS: Final = 80
"""Characters of a list or an object in a cell on a terminal."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A topic that can be watched, and how its records are shown."""

    topic: ReadableTopic
    columns: Row
    numbers: frozenset[str]
    """Headings of right-aligned columns."""
    row: Callable[[dict[str, Any]], Row]
    """Returns a record's cells in full, as a pipe gets them."""
    short: Callable[[Row], Row]
    """Shortens them for a terminal."""


def watched(topic: str, config: Config) -> Watched:
    """Return how a topic is watched. Raises `UserError` if it is neither an output topic nor one of an installed plugin."""
    if topic in ROWS:
        return Watched(output_topic(topic), COLUMNS[topic], NUMBERS, ROWS[topic], partial(shortened, COLUMNS[topic]))
    there = plugins_topics(config)
    if topic in there:
        return _of_plugin(there[topic])
    known = [*ROWS, *there]
    raise UserError(f"TOPIC: expected {', '.join(known)}, found {topic!r}{did_you_mean(topic, known)}")


def watchable(config: Config) -> list[dict[str, Any]]:
    """Return every topic that can be watched: ``topic``, ``owner`` and ``purpose``."""
    return [
        {"topic": each.name, "owner": each.owner, "purpose": each.purpose} for each in readable_topics(config).values()
    ]


def _of_plugin(topic: ReadableTopic) -> Watched:
    fields = {field["name"]: field["type"] for field in topic.schemas[0].source["fields"]}
    columns = tuple(name for name in topic.columns or fields if name in fields)
    headings = tuple(name.replace("_", " ") for name in columns)
    return Watched(
        topic,
        headings,
        frozenset(heading for name, heading in zip(columns, headings, strict=True) if _is_number(fields[name])),
        lambda record: tuple(printable(_cell(record[name])) for name in columns),
        lambda row: tuple(map(_short, row)),
    )


def _is_number(kind: Any) -> bool:
    """Return whether values of an Avro type are numbers, or absent."""
    if isinstance(kind, list):
        return all(_is_number(each) for each in kind if each != "null")
    name = kind.get("logicalType") or kind["type"] if isinstance(kind, dict) else kind
    return name in ("int", "long", "u8", "u16", "u32", "u64", "u128")


def _cell(value: Any) -> str:
    """Format a value as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _short(cell: str) -> str:
    """Return a cell for a terminal: the beginning of a hash, of a list or of an object."""
    if cell.startswith(PREFIX):
        return cut(cell, len(PREFIX) + HASH_CHARACTERS)
    return cut(cell, CELL_CHARACTERS) if cell.startswith(("[", "{")) else cell


IDS_MAX: Final = 100
"""Ids that are named, one line each: anyone who may write records may make up ids."""


class FramedRecords:
    """Names each schema id once instead of every record that has it; without a schema registry, only the first record."""

    def __init__(self, registry: str | None) -> None:
        self._registry = registry
        self._named: set[int] = set()
        self._more = 0

    def takes(self, record: TopicRecord) -> bool:
        """Return whether a record that cannot be decoded is in Confluent's framing, and say so unless its id has been named."""
        schema_id = framed_id(record.value)
        if schema_id is None:
            return False
        if schema_id in self._named or len(self._named) >= (IDS_MAX if self._registry else 1):
            self._more += 1
            return True
        self._named.add(schema_id)
        where = f"validator: {record.topic}[{record.partition}]@{record.offset}"
        found = f"found a record in Confluent's framing, with schema id {schema_id}"
        if self._registry is None:
            say(f"{where}: {found}: to read these, set [schema_registry] url; they are not shown")
        else:
            say(f"{where}: {found}, for which {self._registry} has no schema of ours; such records are not shown")
        return True

    def end(self) -> None:
        """Say how many records were left out and not named."""
        if self._more:
            say(f"validator: {self._more} more records in Confluent's framing are not shown")
