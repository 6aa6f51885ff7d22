# SPDX-License-Identifier: Apache-2.0
"""`validator export`: a lane's recorded inputs as files, for `what-if`, `audit` and `submit`."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from validator.cli.common import ConfigPath, Json, kafka_table, say, terminated_as_interrupted
from validator.cli.progress import counting
from validator.codec.json_form import shown_json
from validator.config import load_config
from validator.config.unknown import chain_of
from validator.core.inputs import DeadLetter, DeadReason
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.history.engine import recorded_inputs
from validator.lanes.configured import configured_codec, lane_definition
from validator.plugin.pack import use_artefacts
from validator.topics import INPUT_TOPICS, TOPIC_OF_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

    from validator.codec.codec import Codec
    from validator.core.inputs import Input

UNREADABLE: Final = "unreadable"
SKIPPED: Final = "skipped"
PARTIAL: Final = ".partial"
"""What a file's name ends with until the export is complete."""


def export(
    lane: Annotated[str, typer.Option(help="The lane.")],
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for blocks.jsonl, candidates.jsonl and so on; overwrites nothing."),
    ],
    from_block: Annotated[int, typer.Option(min=0, max=U32_MAX, help="First block.")] = 0,
    to_block: Annotated[int, typer.Option(min=0, max=U32_MAX, help="Last block.")] = U32_MAX,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Write a lane's recorded inputs from Kafka to a folder, one JSON line for each record, by topic.

    `what-if` and `audit` read the folder with --records, `submit` takes each file. Records that cannot be decoded, and those that an
    operator let the lane skip, are left out and counted; what was sent twice is there twice. An export that fails or is interrupted leaves
    no files.
    """
    if to_block < from_block:
        raise UserError(f"--to-block: expected a block from {from_block} on, found {to_block}")
    config = load_config(config_path)
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
        sys.stdout.write(json.dumps({"lane": lane, "folder": str(out), **counts}) + "\n")
        return
    written = ", ".join(f"{counts[topic]} {topic}" for topic in INPUT_TOPICS)
    sys.stdout.write(f"{out}: {written}\n")
    if counts[UNREADABLE]:
        say(f"left out, as they cannot be decoded: {counts[UNREADABLE]}; see `validator dead-letters list`")
    if counts[SKIPPED]:
        say(f"left out, as an operator ordered the lane to continue without them: {counts[SKIPPED]}")


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
