# SPDX-License-Identifier: Apache-2.0
"""Reads answers of nodes: each function raises `BadAnswer` for an answer that cannot be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from validator.plugin.api import DecodeError, Reader
from validator_relay_chain.block import check_hash
from validator_relay_chain.errors import BadAnswer, NotKnownHere
from validator_relay_chain.header import Header, from_hex
from validator_relay_chain.limits import SPEC_VERSION_MAX
from validator_relay_chain.pool import known

EXTRINSICS_V1_SINCE: Final = 2
"""The runtime's ``systemVersion`` from which on the extrinsics root has state version 1."""

AT_VERSION: Final = "Metadata_metadata_at_version"
"""The runtime's function that gives metadata in a version of the format."""

Value = bytes | None


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a runtime."""

    spec_name: str
    spec_version: int
    extrinsics_version: int


def read_header(answer: Any, block_hash: bytes) -> Header:
    """Return a header that must have a hash."""
    header = Header.from_json(answer)
    check_hash(header, block_hash)
    return header


def read_values(answer: Any, wanted: Sequence[bytes]) -> dict[bytes, Value]:
    """Return the values of one set of changes, by key; None where there is none."""
    found: dict[bytes, Value] = dict.fromkeys(wanted)
    if not isinstance(answer, list) or len(answer) != 1 or not isinstance(answer[0], dict):
        raise BadAnswer(f"state_queryStorageAt: expected one set of changes, found {_shown(answer)}")
    changes = answer[0].get("changes")
    if not isinstance(changes, list):
        raise BadAnswer(f"state_queryStorageAt: expected changes, found {_shown(changes)}")
    for change in changes:
        if not isinstance(change, list) or len(change) != 2:
            raise BadAnswer(f"state_queryStorageAt: expected key and value, found {_shown(change)}")
        key = from_hex(change[0], "storage key")
        if key not in found:
            raise BadAnswer(f"state_queryStorageAt: expected the keys that were asked for, found 0x{key.hex()}")
        found[key] = None if change[1] is None else from_hex(change[1], "storage value")
    if len(changes) != len(found):
        raise NotKnownHere(f"state_queryStorageAt: expected {len(found)} values, found {len(changes)}")
    return found


def read_keys(answer: Any, prefix: bytes, size: int, last: bytes | None) -> list[bytes]:
    """Return a page of keys, ascending, after the ``last`` one."""
    if not isinstance(answer, list) or len(answer) > size:
        raise BadAnswer(f"state_getKeysPaged: expected at most {size} keys, found {_shown(answer)}")
    found = [from_hex(each, "storage key") for each in answer]
    for key in found:
        if not key.startswith(prefix) or (last is not None and key <= last):
            raise BadAnswer(f"state_getKeysPaged: expected ascending keys of 0x{prefix.hex()}, found 0x{key.hex()}")
        last = key
    return found


def read_metadata(answer: Any) -> bytes:
    """Return the metadata of an ``Option<Vec<u8>>``; none is empty."""
    raw = from_hex(known("metadata")(answer), "metadata")
    reader = Reader(raw)
    try:
        found = reader.option(reader.bytes)
    except DecodeError as error:
        raise BadAnswer(f"state_call {AT_VERSION}: {error}") from error
    return found or b""


def read_version(answer: Any) -> Version:
    """Return the version of a runtime."""
    if not isinstance(answer, dict) or type(answer.get("specVersion")) is not int:
        raise BadAnswer(f"state_getRuntimeVersion: expected a specVersion, found {_shown(answer)}")
    if not 0 <= answer["specVersion"] <= SPEC_VERSION_MAX:
        raise BadAnswer(
            f"state_getRuntimeVersion: expected a u32 as specVersion, found {_shown(answer['specVersion'])}"
        )
    name = answer.get("specName")
    if not isinstance(name, str) or not 1 <= len(name) <= 64 or not name.isascii() or not name.isprintable():
        raise BadAnswer(f"state_getRuntimeVersion: expected a specName, found {_shown(name)}")
    system = answer.get("systemVersion", answer.get("stateVersion", 0))
    is_v1 = type(system) is int and system >= EXTRINSICS_V1_SINCE
    return Version(name, answer["specVersion"], int(is_v1))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
