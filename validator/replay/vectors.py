# SPDX-License-Identifier: Apache-2.0
"""Files of test vectors: groups of entries, each with its inputs and what has to come of them. Source: traces FORMAT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from validator.document import Node
from validator.plugin.protocol_api import ProtocolDefinition
from validator.plugin.registry import discover
from validator.plugin.runtime import installed_protocol


class Vector(NamedTuple):
    """An entry of a group, and what comes of its inputs."""

    group: str
    name: str
    expected: dict[str, Any]
    result: dict[str, Any]


def protocol_of(document: Node) -> ProtocolDefinition | None:
    """Return the installed protocol that a file's ``format`` belongs to, None where there is none. Raises `UserError`."""
    wanted = document["format"].text()
    for found in discover("validator.protocols"):
        protocol = installed_protocol(found.name)
        if protocol is not None and protocol.traces.vector_format == wanted:
            return protocol
    return None


def read_vectors(document: Node, protocol: ProtocolDefinition) -> Iterator[Vector]:
    """Yield every entry of a file with what the protocol makes of it. Raises `UserError` where an entry is malformed.

    What is expected is the entry's ``expect``, or else the members of the entry that the result has.
    """
    make = protocol.traces.vectors
    assert make is not None
    for group, entries in document.members():
        if not isinstance(entries.value, list):
            continue
        for at, entry in enumerate(entries.items()):
            result = make(group, entry)
            given = entry.object()
            expected = given.get("expect", {key: given.get(key) for key in result})
            yield Vector(group, str(given.get("id", at)), expected, result)
