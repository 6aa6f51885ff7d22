# SPDX-License-Identifier: Apache-2.0
"""Compares what came out of a trace with its ``expect``; emitted frames are compared after decryption. See the README, "Traces"."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from validator_channel.crypto import DecryptError, Opener
from validator_channel.errors import ErrorCode, WireError
from validator_channel.limits import FRAME_BYTES_MAX, INDEX_MAX, TOPIC_MAX
from validator_channel.replay.cases import Case, Node, Outcome
from validator_channel.session import State
from validator_channel.wire import FrameDecoder, Kind, parse_json, parse_message, unpack_message_id

_ABSENT: Final = object()
_ACKNOWLEDGEMENT: Final = b"{}"


@dataclass(frozen=True, slots=True)
class Emitted:
    """A decrypted frame of the implementation."""

    kind: str
    topic: int
    index: int
    plaintext: bytes


@dataclass(frozen=True, slots=True)
class Expected:
    """What a step must bring; None or absent members are not compared, but an absent ``raises`` means that nothing is raised."""

    tx: list[dict[str, Any]] | None
    events: list[dict[str, Any]] | None
    members: dict[str, Any]
    raises: str | None


def read_expected(case: Case) -> list[Expected]:
    """Return what each step of a trace must bring. Raises `DocumentError`."""
    return [_read_step(step.node["expect"]) for step in case.steps]


def judge(case: Case, expected: list[Expected], outcomes: list[Outcome]) -> str | None:
    """Return the first difference of a trace, or None."""
    reader = _FrameReader(case)
    for at, (wanted, outcome) in enumerate(zip(expected, outcomes, strict=True)):
        difference = _difference(wanted, outcome, reader)
        if difference is not None:
            return f"step {at}: {difference}"
    return None


class _FrameReader:
    """Decrypts emitted frames, and checks that counters are 0, 1, 2, ... without repeat or gap."""

    def __init__(self, case: Case) -> None:
        self._peer = case.parties.peers[case.role]
        self._parties = case.parties
        self._opener = Opener(case.parties.keys[case.role], self._peer)
        self._counter = 0

    def read(self, wire: bytes) -> list[Emitted] | str:
        """Return the emitted messages, or what is wrong with the bytes."""
        decoder = FrameDecoder(FRAME_BYTES_MAX)
        frames = decoder.feed(wire)
        if decoder.is_inside_frame:
            return "the emitted bytes end inside a frame"
        try:
            return [self._open(frame) for frame in frames]
        except (WireError, DecryptError, ValueError) as error:
            return f"an emitted frame is wrong: {error or type(error).__name__}"

    def _open(self, frame: bytes) -> Emitted:
        message = parse_message(frame)
        parts = unpack_message_id(message.id)
        found = (message.peer, parts.channel, parts.session, message.counter)
        if found != (self._peer, self._parties.channel, self._parties.session, self._counter):
            raise ValueError("peer, channel, session or counter")
        self._counter += 1
        plaintext = self._opener.open(message.kind, message.id, message.counter, message.sealed)
        return Emitted(message.kind.value, parts.topic, parts.index, plaintext)


def _difference(wanted: Expected, outcome: Outcome, reader: _FrameReader) -> str | None:
    emitted = reader.read(outcome.wire)
    if isinstance(emitted, str):
        return emitted
    if wanted.tx is not None and not _same_messages(wanted.tx, emitted):
        return _named("tx", wanted.tx, [_emitted_json(each) for each in emitted])
    if wanted.events is not None and wanted.events != outcome.events:
        return _named("events", wanted.events, outcome.events)
    found = outcome.as_json()
    for name, value in {**wanted.members, "raises": wanted.raises}.items():
        if found[name] != value:
            return _named(name, value, found[name])
    return None


def _same_messages(wanted: list[dict[str, Any]], emitted: list[Emitted]) -> bool:
    return len(wanted) == len(emitted) and all(map(_same_message, wanted, emitted))


def _same_message(wanted: dict[str, Any], emitted: Emitted) -> bool:
    if (wanted["kind"], wanted["topic"], wanted["index"]) != (emitted.kind, emitted.topic, emitted.index):
        return False
    if emitted.kind == Kind.ACKNOWLEDGE and emitted.plaintext != _ACKNOWLEDGEMENT:
        return False
    if "payload_hex" in wanted:
        return bool(bytes.fromhex(wanted["payload_hex"]) == emitted.plaintext)
    if "payload_json" not in wanted:
        return True
    try:
        found = parse_json(emitted.plaintext)
    except ValueError:
        return False
    return isinstance(found, dict) and all(
        _same_value(found.get(key, _ABSENT), value) for key, value in wanted["payload_json"].items()
    )


def _same_value(found: Any, wanted: Any) -> bool:
    return type(found) is type(wanted) and bool(found == wanted)


def _emitted_json(emitted: Emitted) -> dict[str, Any]:
    members = {"kind": emitted.kind, "topic": emitted.topic, "index": emitted.index}
    return {**members, "payload_hex": emitted.plaintext.hex()}


def _named(what: str, wanted: object, found: object) -> str:
    return f"{what}: expected {json.dumps(wanted)}, got {json.dumps(found)}"


# --- reading ---


def _read_step(expect: Node) -> Expected:
    members: dict[str, Any] = {}
    if expect.has("state"):
        members["state"] = expect["state"].one_of(*State)
    for key in ("closed", "clean"):
        if expect.has(key) and expect[key].value is not None:
            members[key] = expect[key].boolean()
    raises = None
    if expect.has("raises") and expect["raises"].value is not None:
        raises = expect["raises"].one_of(*ErrorCode)
    tx = [_read_message(node) for node in expect["tx"].items()] if expect.has("tx") else None
    events = [_read_event(node) for node in expect["events"].items()] if expect.has("events") else None
    return Expected(tx, events, members, raises)


def _read_message(node: Node) -> dict[str, Any]:
    node["kind"].one_of(*Kind)
    node["topic"].integer(0, TOPIC_MAX)
    node["index"].integer(0, INDEX_MAX)
    if node.has("payload_hex"):
        node["payload_hex"].hex()
    if node.has("payload_json"):
        node["payload_json"].object()
    return node.object()


def _read_event(node: Node) -> dict[str, Any]:
    node["event"].text()
    return node.object()
