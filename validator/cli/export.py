# SPDX-License-Identifier: Apache-2.0
"""`validator export`: a lane's recorded inputs as files, how `what-if` and `audit` read these files again, and a topic as Parquet."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from validator import exit_codes
from validator.cli.common import (
    ConfigPath,
    Json,
    OneLane,
    connected,
    kafka_table,
    lane_of,
    lines,
    opened,
    parse,
    print_json,
    say,
    terminated_as_interrupted,
)
from validator.cli.progress import counting
from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input, shown_json
from validator.config import load_config
from validator.config.explain import chain_of
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.core.limits import U32_MAX
from validator.document import parse_document
from validator.errors import UserError
from validator.history.emitted import COMPARED
from validator.history.engine import RECORDS_PER_STEP, by_block, recorded_inputs
from validator.lanes.configured import configured_codec, lane_definition
from validator.plugin.pack import use_artefacts
from validator.topics import INPUT_TOPICS, TOPIC_OF_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO, Any

    from validator.codec.codec import Codec
    from validator.config import Config
    from validator.core.inputs import Input
    from validator.history.engine import Progress
    from validator.lanes.definition import LaneDefinition


UNREADABLE: Final = "unreadable"
SKIPPED: Final = "skipped"
PARTIAL: Final = ".partial"
"""What a file's name ends with until the export is complete."""


def export(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="A topic as `validator watch` lists them, with --parquet; without it: a lane's inputs.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for blocks.jsonl, candidates.jsonl and so on; overwrites nothing."),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for Parquet files of TOPIC; continues where the last export ended."
        ),
    ] = None,
    lane: OneLane = None,
    from_block: Annotated[int, typer.Option(min=0, max=U32_MAX, help="First block.")] = 0,
    to_block: Annotated[int, typer.Option(min=0, max=U32_MAX, help="Last block.")] = U32_MAX,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Write a lane's recorded inputs to a folder as JSON lines, or a topic's records as Parquet.

    `what-if` and `audit` read the folder with --records, `submit` takes each file. Records that cannot be decoded, and those that an
    operator let the lane skip, are left out and counted; what was sent twice is there twice. An export that fails or is interrupted leaves
    no files.

    With TOPIC and --parquet, the records of all lanes are written, by lane and span of blocks, as DuckDB, Spark and pandas read them. Run
    the command again for what has come since: each record is in the folder once, also if an export is killed.

    Examples:

    - `validator export --lane polkadot --out recorded` writes inputs for `what-if` and `audit`
    - `validator export verdicts --parquet verdicts` writes the verdicts, or those that have come since
    """
    if topic is not None or parquet is not None:
        _export_topic(
            topic,
            parquet,
            config_path,
            as_json=as_json,
            is_alone=out is None and lane is None and (from_block, to_block) == (0, U32_MAX),
        )
        return
    if out is None:
        raise UserError("expected --out FOLDER for a lane's inputs, or TOPIC with --parquet FOLDER, found neither")
    if to_block < from_block:
        raise UserError(f"--to-block: expected a block from {from_block} on, found {to_block}")
    config = load_config(config_path)
    lane = lane_of(config, lane)
    chain_of(config.chains, lane)
    use_artefacts(config.plugins.artefacts)
    codec = configured_codec(config)
    paths = {topic: out / f"{topic}.jsonl" for topic in INPUT_TOPICS}
    taken = next((path for path in paths.values() if path.exists()), None)
    if taken is not None:
        raise UserError(f"{taken}: exists already: expected a folder without files of an earlier export")
    counted = counting(f"lane {lane}: exporting its inputs")
    with terminated_as_interrupted(), counted as progress, _written(paths) as files:
        inputs = recorded_inputs(
            kafka_table(config), config.topics.prefix, codec, lane_definition(config, lane), progress
        )
        counts = _write(inputs, codec, files, range(from_block, to_block + 1))
    if as_json:
        print_json({"lane": lane, "folder": str(out), **counts})
        return
    written = ", ".join(f"{counts[topic]} {topic}" for topic in INPUT_TOPICS)
    sys.stdout.write(f"{out}: {written}\n")
    if counts[UNREADABLE]:
        say(f"left out, as they cannot be decoded: {counts[UNREADABLE]}; see `validator dead-letters list`")
    if counts[SKIPPED]:
        say(f"left out, as an operator ordered the lane to continue without them: {counts[SKIPPED]}")


def _export_topic(
    topic: str | None, folder: Path | None, config_path: Path | None, *, as_json: bool, is_alone: bool
) -> None:
    if topic is None or folder is None:
        given, lacks = ("TOPIC", "--parquet FOLDER") if folder is None else ("--parquet", "TOPIC")
        raise UserError(f"expected {lacks} with {given}, found none")
    if not is_alone:
        raise UserError(
            "--parquet takes all records of a topic: expected no --out, --lane, --from-block or --to-block with it"
        )
    from validator.cli.parquet import export_parquet  # what few need

    with terminated_as_interrupted():
        try:
            found = export_parquet(topic, folder, connected(config_path))
        except KeyboardInterrupt:
            say(f"validator: interrupted: the next export to {folder} continues")
            raise typer.Exit(exit_codes.INTERRUPTED) from None
    if as_json:
        print_json(found)
    else:
        sys.stdout.write(f"{folder}: {found['records']} {topic} in {found['files']} files\n")


@contextmanager
def _written(paths: dict[str, Path]) -> Iterator[dict[str, IO[str]]]:
    """Yield files that get their names once all are complete; whatever ends it earlier removes them.

    The first gets its name last: `what-if` and `audit` refuse a folder without it. Raises `UserError` if a file cannot be written.
    """
    made: list[Path] = []
    files: dict[str, IO[str]] = {}
    try:
        with _translated():
            for topic, path in paths.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                made.append(path.with_name(path.name + PARTIAL))
                try:
                    files[topic] = made[-1].open("x", encoding="utf-8", newline="\n")
                except FileExistsError:
                    unfinished = made.pop()
                    raise UserError(
                        f"{unfinished}: exists already: another export writes it, or was killed; then remove it"
                    ) from None
        yield files
        for file in files.values():
            with _translated(file.name):
                file.close()
        with _translated():
            for path in reversed(paths.values()):
                path.with_name(path.name + PARTIAL).replace(path)
                made.append(path)
    except BaseException:
        for file in files.values():
            with suppress(OSError):  # it may have no room for what is left to be written
                file.close()
        for path in made:
            path.unlink(missing_ok=True)
        raise


@contextmanager
def _translated(name: str | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{name or error.filename}: cannot be written: {error.strerror}") from error


def _write(
    inputs: Iterable[Input | DeadLetter], codec: Codec, files: dict[str, IO[str]], blocks: range
) -> dict[str, int]:
    """Write the inputs of some blocks; return how many, by topic, and how many are left out."""
    counts = {**dict.fromkeys(files, 0), UNREADABLE: 0, SKIPPED: 0}
    for item in inputs:
        if isinstance(item, DeadLetter):
            counts[SKIPPED if item.reason is DeadReason.SKIPPED else UNREADABLE] += 1
        elif item.block in blocks:
            topic = TOPIC_OF_KIND[item.kind]
            line = json.dumps(shown_json(topic, item.raw, codec)) + "\n"
            with _translated(files[topic].name):
                files[topic].write(line)
            counts[topic] += 1
    return counts


_OF_A_LANE: Final = re.compile(rb'\s*\{.*"lane".*\}\s*$', re.DOTALL)
"""What a record that names its lane looks like."""


def inputs_of(
    config: Config, definition: LaneDefinition, folder: Path | None, progress: Progress
) -> Iterator[Input | DeadLetter]:
    """Return a lane's recorded inputs, from a folder if one is given, else from Kafka. Raises `UserError`."""
    if folder is not None:
        return file_inputs(folder, definition, progress)
    return recorded_inputs(kafka_table(config), config.topics.prefix, configured_codec(config), definition, progress)


def file_inputs(folder: Path, definition: LaneDefinition, progress: Progress) -> Iterator[Input | DeadLetter]:
    """Yield a lane's inputs, merged by block; records of other lanes are left out, and so are files that do not exist.

    ``progress`` gets bytes. Raises `UserError`: there is no blocks.jsonl, a line is no record of its topic.
    """
    paths = {topic: folder / f"{topic}.jsonl" for topic in INPUT_TOPICS}
    if not paths["blocks"].exists():
        raise UserError(
            f"{paths['blocks']}: no such file: expected a folder with blocks.jsonl, candidates.jsonl and so on"
        )
    there = {topic: path for topic, path in paths.items() if path.exists()}
    total = sum(path.stat().st_size for path in there.values())
    read = dict.fromkeys(there, 0)

    def items(topic: str, path: Path) -> Iterator[Input | DeadLetter]:
        with opened(str(path)) as (stream, name):
            for number, line in lines(stream, name):
                read[topic] += len(line)
                # most records of other lanes need not be parsed
                if definition.name.encode() in line or not _OF_A_LANE.match(line):
                    yield from _item(definition, topic, line, f"{name}, line {number}", number)

    merged = by_block(items(topic, path) for topic, path in there.items())
    for number, item in enumerate(merged):
        if number % RECORDS_PER_STEP == 0:
            progress(sum(read.values()), total)
        yield item
    progress(total, total)


def emitted_documents(folder: Path) -> dict[str, Iterator[dict[str, Any]]]:
    """Return, by topic, the records of the files that a folder has of what a lane has emitted, as `validator watch --json` prints them."""
    paths = {topic: folder / f"{topic}.jsonl" for topic in COMPARED}
    return {topic: _documents(path) for topic, path in paths.items() if path.exists()}


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    with opened(str(path)) as (stream, name):
        for number, line in lines(stream, name):
            node = parse_document(line, f"{name}, line {number}")
            node["lane"].text()
            node["block"].integer()
            yield node.object()


def _item(definition: LaneDefinition, topic: str, line: bytes, where: str, number: int) -> Iterator[Input | DeadLetter]:
    record = parse(line, where)
    if isinstance(record, dict) and record.get("lane", definition.name) != definition.name:
        return
    kind = INPUT_TOPICS[topic]
    try:
        value = encode_input(definition.codec, kind, record, definition.protocol.name)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    decoded = decode_record(
        definition.codec, kind, value, Source(topic, 0, number), None, {definition.name: definition.records}
    )
    yield decoded if isinstance(decoded, DeadLetter) else decoded[1]
