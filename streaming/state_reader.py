# SPDX-License-Identifier: Apache-2.0
"""`python -m streaming.state_reader CHECKPOINT OUTPUT [LANE ...]`: export the lanes of a checkpoint to a file for other programs.

It reads the files of Spark's state store itself, without Java, in a separate process, because a library in C++ reads them. The job may be
running: none of its files is changed. All state variables are read as of one committed batch. OUTPUT has the format of
`validator.lanes.stored`: the head of every lane, and the slots and journals of the named lanes, or of all lanes if none is named. An error
is the last line on standard error and begins with ``validator: ``. Exit codes: `validator.exit_codes`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from streaming.state_store import Store, StoreUnreadable, binary_of, lane_and_slot, lane_of_key, list_of, open_store
from validator import exit_codes
from validator.checkpoint.files import consumed_by_batch, last_committed_batch, numbered, state_options
from validator.errors import UserError
from validator.lanes.stored import Part, write_end, write_entry, write_header

ATTEMPTS_MAX = 5
"""Attempts, each at a newer batch because the job has removed files that the previous one needs."""

STATE_FORMAT = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
}
"""What the checkpoint says of the format that this module reads."""

_OPERATOR = Path("state", "0")
"""The folder of the query's only stateful operator, with a folder per partition."""

StoredRow: TypeAlias = tuple[Part, str, int, bytes]
"""Part, lane, number and data (`write_entry`)."""


def main(arguments: Sequence[str]) -> int:
    """Read a checkpoint and return the exit code."""
    if len(arguments) < 2:
        sys.stderr.write("usage: python -m streaming.state_reader CHECKPOINT OUTPUT [LANE ...]\n")
        return exit_codes.USER_ERROR
    try:
        read_lanes(Path(arguments[0]), Path(arguments[1]), arguments[2:])
    except UserError as error:
        sys.stderr.write(f"\nvalidator: {error}\n")
        return exit_codes.USER_ERROR
    return exit_codes.OK


def read_lanes(checkpoint: Path, output: Path, lanes: Sequence[str]) -> int:
    """Write the file as of the last committed batch and return that batch. Raises `UserError`."""
    for _ in range(ATTEMPTS_MAX):
        batch = last_committed_batch(checkpoint)
        try:
            _read_batch(checkpoint, batch, output, lanes)
        except (OSError, StoreUnreadable, UserError) as error:
            failure = error
        else:
            return batch
        if last_committed_batch(checkpoint) == batch:
            break
    raise UserError(f"{checkpoint}: the state after batch {batch} cannot be read: {failure}") from failure


def _read_batch(checkpoint: Path, batch: int, output: Path, lanes: Sequence[str]) -> None:
    consumed = consumed_by_batch(checkpoint, batch)
    _check_format(checkpoint, batch)
    entries = 0
    with output.open("wb") as file:
        write_header(file, batch, consumed)
        for partition in _partitions(checkpoint):
            # a batch reads the version of its number, and commits the next one
            with open_store(partition, batch + 1, output.with_name(f"{output.name}.{partition.name}")) as store:
                for part, lane, number, data in _entries(store, lanes):
                    write_entry(file, part, lane, number, data)
                    entries += 1
        write_end(file, entries)


def _check_format(checkpoint: Path, batch: int) -> None:
    found = state_options(checkpoint, batch)
    for name, expected in STATE_FORMAT.items():
        if (value := found.get(name, expected)) != expected:
            raise StoreUnreadable(f"{name}: expected {expected}, found {value}")


def _partitions(checkpoint: Path) -> list[Path]:
    return numbered(checkpoint / _OPERATOR, Path.is_dir)


def _entries(store: Store, lanes: Sequence[str]) -> Iterator[StoredRow]:
    """Yield the variables of `streaming.lane_operator.SparkState`."""
    for key, value in store.entries("head"):
        yield Part.HEAD, lane_of_key(key), 0, binary_of(value)
    for key, value in store.entries("slots"):
        lane, slot = lane_and_slot(key)
        if not lanes or lane in lanes:
            yield Part.SLOT, lane, slot, binary_of(value)
    for key, value in store.entries("journal"):
        lane = lane_of_key(key)
        if not lanes or lane in lanes:
            for number, entry in enumerate(list_of(value)):
                yield Part.JOURNAL, lane, number, entry


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
