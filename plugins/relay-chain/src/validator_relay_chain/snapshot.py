# SPDX-License-Identifier: Apache-2.0
"""Reads the storage that a lane begins with, after one block: every value proven against the header's state root where the node can.

The raw answers are kept, so that the same state can be made again from the file alone.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from validator_relay_chain import keys
from validator_relay_chain.errors import FollowError
from validator_relay_chain.header import Header, from_hex, to_hex
from validator_relay_chain.limits import VALUES_PER_CALL
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.source import Chain

ITEMS: Final = (
    ("configuration", keys.ACTIVE_CONFIG),
    ("lifecycles of paras", keys.PARA_LIFECYCLES),
    ("channels", keys.HRMP_CHANNELS),
    ("contents of channels", keys.HRMP_CONTENTS),
    ("digests", keys.HRMP_DIGESTS),
    ("watermarks", keys.HRMP_WATERMARKS),
    ("channels by recipient", keys.HRMP_INGRESS),
    ("channels by sender", keys.HRMP_EGRESS),
    ("requests to open", keys.HRMP_OPEN_REQUESTS),
    ("their order", keys.HRMP_OPEN_REQUESTS_LIST),
    ("requests to close", keys.HRMP_CLOSE_REQUESTS_LIST),
    ("downward queues", keys.DMP_QUEUES),
    ("heads of downward queues", keys.DMP_HEADS),
)
"""What every runtime has: a title and the prefix of its keys."""

SINGLE: Final = (keys.ACTIVE_CONFIG, keys.HRMP_OPEN_REQUESTS_LIST, keys.HRMP_CLOSE_REQUESTS_LIST, keys.MQ_HEAD)
"""Items of one value: no maps."""

PENDING_BEFORE_V1: Final = (
    ("pending candidates", keys.PENDING),
    ("their commitments", keys.PENDING_COMMITMENTS),
)
PENDING_V1: Final = (("pending candidates", keys.PENDING_V1),)
DOWNWARD_PAGES: Final = (
    ("pages of downward queues that wait", keys.DMP_META),
    ("pages of downward queues", keys.DMP_PAGES),
)
UPWARD: Final = (("upward queues", keys.UMP_QUEUES),)
UPWARD_PAGES: Final = (
    ("books of upward messages", keys.MQ_BOOKS),
    ("pages of upward messages", keys.MQ_PAGES),
    ("whose are dispatched next", keys.MQ_HEAD),
)

Progress = Callable[[str, int, int], None]
"""Called with what is read, how many of its values are there, and how many it has so far."""


@dataclass(frozen=True)
class Snapshot:
    """The storage after a block, by key."""

    header: Header
    spec_name: str
    spec_version: int
    """Of the runtime in this state."""
    values: dict[bytes, bytes] = field(default_factory=dict)
    is_proven: bool = True
    """Whether every value is proven. That no key was left out is compared as far as the state says it twice (`seeding`)."""

    def of(self, prefix: bytes) -> dict[bytes, bytes]:
        """Return the values of a storage item, by key, ascending."""
        return {key: value for key, value in sorted(self.values.items()) if key.startswith(prefix)}

    def write(self, path: Path) -> None:
        """Keep the snapshot as JSON lines with gzip. Raises `FollowError`."""
        lines: list[dict[str, Any]] = [
            {
                "header": self.header.to_json(),
                "hash": to_hex(self.header.hash),
                "specName": self.spec_name,
                "specVersion": self.spec_version,
                "proven": self.is_proven,
            }
        ]
        lines += [{"key": to_hex(key), "value": to_hex(value)} for key, value in sorted(self.values.items())]
        try:
            with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                for line in lines:
                    packed.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise FollowError(f"{path}: cannot be written: {error.strerror}") from error

    @classmethod
    def read(cls, path: Path) -> Snapshot:
        """Return the snapshot of a file. Raises `FollowError`."""
        try:
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                first = json.loads(next(stream))
                values = {}
                for line in stream:
                    each = json.loads(line)
                    values[from_hex(each["key"], "key")] = from_hex(each["value"], "value")
            header = Header.from_json(first["header"])
            return cls(header, first["specName"], first["specVersion"], values, first["proven"])
        except (OSError, EOFError, ValueError, LookupError, TypeError, StopIteration) as error:
            raise FollowError(f"{path}: expected a snapshot, found {error}") from error


def take_snapshot(chain: Chain, header: Header, runtime: Runtime, progress: Progress) -> Snapshot:
    """Return the storage after a block.

    Raises `UndecodableBlock` for a runtime whose storage has another shape, `BadAnswer` if every node's proof is wrong, and `NodeError`.
    """
    runtime.check_seeded()
    block_hash = header.hash
    values: dict[bytes, bytes] = {}
    is_proven = True
    for title, prefix in items_of(runtime):
        done = total = 0
        for page in _pages(chain, prefix, block_hash):
            total += len(page)
            for start in range(0, len(page), VALUES_PER_CALL):
                part = page[start : start + VALUES_PER_CALL]
                found, is_part_proven = chain.checked(chain.values(part, block_hash), header)
                is_proven = is_proven and is_part_proven
                values |= {key: value for key, value in found.items() if value is not None}
                done += len(part)
                progress(title, done, total)
        progress(title, done, total)
    return Snapshot(header, runtime.spec_name, runtime.spec_version, values, is_proven)


def items_of(runtime: Runtime) -> tuple[tuple[str, bytes], ...]:
    """Return titles and prefixes of what is read of a runtime's state."""
    pending = PENDING_V1 if runtime.has("ParaInclusion", "V1") else PENDING_BEFORE_V1
    upward = UPWARD_PAGES if runtime.has("MessageQueue", "BookStateFor") else ()
    downward = DOWNWARD_PAGES if runtime.has_downward_pages else ()
    return (*ITEMS, *downward, *pending, *(UPWARD if runtime.has("Ump", "RelayDispatchQueues") else ()), *upward)


def _pages(chain: Chain, prefix: bytes, block_hash: bytes) -> Iterable[list[bytes]]:
    """Yield the keys of a storage item: of a map as the node lists them, else the prefix itself."""
    if prefix in SINGLE:
        yield [prefix]
    else:
        yield from chain.keys_of(prefix, block_hash)
