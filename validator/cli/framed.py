# SPDX-License-Identifier: Apache-2.0
"""What a person reads of records in Confluent's framing whose schema is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from validator.cli.common import say
from validator.codec.framing import framed_id

if TYPE_CHECKING:
    from validator.kafka.reader import TopicRecord

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
