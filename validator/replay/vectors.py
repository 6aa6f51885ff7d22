# SPDX-License-Identifier: Apache-2.0
"""Files of test vectors: groups of entries, each with inputs and the expected result. See `docs/trace-format.md`, "Test vectors"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from validator.document import Node
from validator.plugin.protocol_api import ProtocolDefinition
from validator.plugin.registry import discover
from validator.plugin.runtime import installed_protocol
from validator.replay.failures import failures_of_reader


class Vector(NamedTuple):
    """An entry of a group, with the result of its inputs."""

    group: str
    name: str
    expected: dict[str, Any]
    result: dict[str, Any]


def protocol_of(document: Node) -> ProtocolDefinition | None:
    """Return the installed protocol that a file's ``format`` belongs to, or None. Raises `UserError`."""
    wanted = document["format"].text()
    for found in discover("validator.protocols"):
        protocol = installed_protocol(found.name)
        if protocol is not None and protocol.traces.vector_format == wanted:
            return protocol
    return None


def read_vectors(document: Node, protocol: ProtocolDefinition) -> Iterator[Vector]:
    """Yield every entry of a file with the protocol's result for it. Raises `UserError` if an entry is malformed, `PluginFailed`.

    The expected result is the entry's ``expect``, or without it the entry's members under the result's keys.
    """
    make = protocol.traces.vectors
    assert make is not None
    for group, entries in document.members():
        if not isinstance(entries.value, list):
            continue
        for at, entry in enumerate(entries.items()):
            with failures_of_reader(protocol, entry.path):
                result = make(group, entry)
            given = entry.object()
            expected = given.get("expect", {key: given.get(key) for key in result})
            yield Vector(group, str(given.get("id", at)), expected, result)
