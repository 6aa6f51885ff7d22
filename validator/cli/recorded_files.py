# SPDX-License-Identifier: Apache-2.0
"""A lane's recorded inputs, from Kafka or from a folder of JSON lines, one file for each topic, as `validator simulate` writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.cli.common import kafka_table
from validator.cli.json_lines import lines, opened, parse
from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input
from validator.core.inputs import DeadLetter, Source
from validator.errors import UserError
from validator.history.engine import RECORDS_PER_STEP, by_block, recorded_inputs
from validator.lanes.configured import configured_codec
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.config import Config
    from validator.core.inputs import Input
    from validator.history.engine import Progress
    from validator.lanes.definition import LaneDefinition


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
