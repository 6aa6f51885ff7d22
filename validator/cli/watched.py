# SPDX-License-Identifier: Apache-2.0
"""What `validator watch` can show: the output topics, and the topics that installed plugins declare."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from validator.cli.rows import COLUMNS, HASH_CHARACTERS, NUMBERS, ROWS, Json, Row, shortened
from validator.cli.table import cut
from validator.codec.codec import RecordUnreadable
from validator.codec.json_form import datum_to_json, shown_json
from validator.errors import UserError
from validator.hexadecimal import PREFIX, to_hex
from validator.topics import TOPICS
from validator.visible import printable

if TYPE_CHECKING:
    from validator.config import Config
    from validator.transports.topics import PluginTopic

PARA_FIELDS: Final = ("para_id", "sender", "recipient")
"""Fields that name a para."""

CELL_CHARACTERS: Final = 80
"""Characters of a list or an object in a cell on a terminal."""

_OF_NO_PARA: Final = ("receipts", "dead-letters", "lanes")


@dataclass(frozen=True, slots=True)
class Watched:
    """A topic that can be watched, and how its records are shown."""

    name: str
    columns: Row
    numbers: frozenset[str]
    """Headings of right-aligned columns."""
    row: Callable[[Json], Row]
    """Returns a record's cells in full, as a pipe gets them."""
    short: Callable[[Row], Row]
    """Shortens them for a terminal."""
    decode: Callable[[bytes], Json]
    """Returns a record in JSON form. Raises `UserError`."""
    has_para: bool
    missing: str
    """What to do if the topic does not exist."""


def watched(topic: str, config: Config) -> Watched:
    """Return how a topic is watched. Raises `UserError` if it is neither an output topic nor one of an installed plugin."""
    if topic in ROWS:
        return Watched(
            topic,
            COLUMNS[topic],
            NUMBERS,
            ROWS[topic],
            partial(shortened, COLUMNS[topic]),
            partial(shown_json, topic),
            topic not in _OF_NO_PARA,
            "create the topics with `validator topics create`",
        )
    from validator.transports.topics import plugin_topics  # imports every plugin

    there = plugin_topics(config)
    if topic in there:
        return _of_plugin(there[topic])
    known = [*ROWS, *there]
    close = get_close_matches(topic, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise UserError(f"TOPIC: expected {', '.join(known)}, found {topic!r}{hint}")


def watchable(config: Config) -> list[Json]:
    """Return every topic that can be watched: ``topic``, ``owner`` and ``purpose``."""
    from validator.transports.topics import plugin_topics  # imports every plugin

    own = [
        {"topic": each.name, "owner": "job", "purpose": each.purpose}
        for name in ROWS
        for each in TOPICS
        if each.name == name
    ]
    return own + [
        {"topic": each.name, "owner": each.owner, "purpose": each.purpose} for each in plugin_topics(config).values()
    ]


def _of_plugin(topic: PluginTopic) -> Watched:
    schema = topic.form.format.schema
    fields = {field["name"]: field["type"] for field in schema.source["fields"]}
    columns = tuple(name for name in topic.form.columns or fields if name in fields)
    headings = tuple(name.replace("_", " ") for name in columns)

    def decode(value: bytes) -> Json:
        try:
            return datum_to_json(schema, topic.form.format.decode(value), digits=to_hex)
        except RecordUnreadable as error:
            raise UserError(f"{topic.name}: {error}") from None

    return Watched(
        topic.name,
        headings,
        frozenset(heading for name, heading in zip(columns, headings, strict=True) if _is_number(fields[name])),
        lambda record: tuple(printable(_cell(record[name])) for name in columns),
        lambda row: tuple(map(_short, row)),
        decode,
        any(name in fields for name in PARA_FIELDS),
        f"start the {topic.owner}, which creates it",
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
