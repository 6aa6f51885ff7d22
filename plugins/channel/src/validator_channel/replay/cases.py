# SPDX-License-Identifier: Apache-2.0
"""Reads and plays state-machine traces: operations of a session, and what came out of each. See the README, "Traces".

Each value of the file keeps its path, so that an error fits one line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, Final

from validator_channel.errors import LocalError, printable
from validator_channel.events import (
    Event,
    MessageDelivered,
    MessageReceived,
    MessageRejected,
    PeerError,
    PeerLeft,
    SessionClosed,
    SessionError,
    TopicRefused,
    TopicRequested,
)
from validator_channel.limits import INDEX_MAX, INTEGER_MAX, KEY_BYTES, SECONDS_MAX, SESSION_MAX, Settings
from validator_channel.session import Session
from validator_channel.wire import Role

SHOWN_CHARACTERS_MAX: Final = 60
"""Maximum characters of a wrong value in an error."""


class DocumentError(Exception):
    """A malformed file: one line that says where, what was expected and what was found."""


class Node:
    """A JSON value with its path; every accessor raises `DocumentError` for a value of another shape."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, expected: str) -> DocumentError:
        """Return the error that this value is not what was expected."""
        return DocumentError(f"{self.path}: expected {expected}, found {_shown(self.value)}")

    def has(self, key: str) -> bool:
        """Return whether an object has this member, also if it is null."""
        return key in self.object()

    def __getitem__(self, key: str) -> Node:
        """Return a member that must exist."""
        if not self.has(key):
            raise DocumentError(f"{self.path}: key {key!r} is missing")
        return Node(self.value[key], f"{self.path}.{key}")

    def object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        return self.value

    def items(self) -> Iterator[Node]:
        if not isinstance(self.value, list):
            raise self.fail("an array")
        for at, item in enumerate(self.value):
            yield Node(item, f"{self.path}[{at}]")

    def integer(self, low: int, high: int) -> int:
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.fail(f"an integer from {low} to {high}")
        return self.value

    def any_integer(self) -> int:
        """Return an integer of any size, to give it to a call that checks it."""
        if type(self.value) is not int:
            raise self.fail("an integer")
        return self.value

    def seconds(self) -> float:
        if type(self.value) not in {int, float} or not isfinite(self.value) or not 0 <= self.value <= SECONDS_MAX:
            raise self.fail(f"seconds from 0 to {SECONDS_MAX}")
        return float(self.value)

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.fail("true or false")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.fail("a string")
        return self.value

    def utf8(self) -> bytes:
        """Return a string in UTF-8."""
        try:
            return self.text().encode()
        except UnicodeEncodeError:
            raise self.fail("a string without unpaired surrogates") from None

    def one_of(self, *choices: str) -> str:
        if self.value not in choices:
            raise self.fail(f"one of {', '.join(choices)}")
        return self.text()

    def hex(self, size: int | None = None) -> bytes:
        """Return bytes from lower-case hex, exactly ``size`` of them if that is given."""
        expected = "bytes in lower-case hex" if size is None else f"{size} bytes in lower-case hex"
        text = self.text()
        try:
            data = bytes.fromhex(text)
        except ValueError:
            raise self.fail(expected) from None
        if data.hex() != text or (size is not None and len(data) != size):
            raise self.fail(expected)
        return data

    def number(self, size: int) -> int:
        """Return the integer behind ``size`` bytes in hex, big-endian."""
        return int.from_bytes(self.hex(size), "big")


def read_document(path: Path) -> Node:
    """Return a JSON file's value. Raises `DocumentError` if the file cannot be read or is not JSON.

    The reader is not the strict one of the protocol: a file may describe bad frames, so duplicate names, NaN and surrogates pass.
    """
    name = printable(str(path))
    try:
        return Node(json.loads(path.read_bytes().decode("utf-8")), name)
    except OSError as error:
        raise DocumentError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{name}: not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise DocumentError(f"{name}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise DocumentError(f"{name}: nested too deeply") from None
    except ValueError as error:
        raise DocumentError(f"{name}: {printable(str(error))}") from None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


ROLES: Final = {"connector": Role.CONNECTOR, "listener": Role.LISTENER}

_INDEX_NAMES: Final = ("index", "next_index", "next")
"""What a file may call the argument of `set_next_index`."""

Operation = Callable[[Session, float], object]


@dataclass(frozen=True, slots=True)
class Parties:
    """The session that all traces of a file share; both arrays are indexed by role."""

    channel: int
    session: int
    peers: tuple[int, int]
    keys: tuple[bytes, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation at a time in seconds, and the file's node for what must come out of it."""

    at: float
    run: Operation
    node: Node


@dataclass(frozen=True, slots=True)
class Case:
    """One trace."""

    id: str
    title: str
    role: Role
    settings: Settings
    parties: Parties
    steps: tuple[Step, ...]


@dataclass(slots=True)
class Outcome:
    """What came out of a step; ``events`` are without the closing report, whose value is ``clean``."""

    wire: bytes
    events: list[dict[str, Any]]
    state: str
    raises: str | None
    closed: bool
    clean: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the step as `validator-channel replay --json` prints it."""
        return {
            "wire_hex": self.wire.hex(),
            "events": self.events,
            "state": self.state,
            "raises": self.raises,
            "closed": self.closed,
            "clean": self.clean,
        }


def read_cases(document: Node) -> list[Case]:
    """Return the traces of a file without looking at any ``expect``; an absent group has none. Raises `DocumentError`."""
    if not document.has("traces"):
        return []
    traces = document["traces"]
    parties = _read_parties(traces)
    return [_read_case(node, parties) for node in traces["cases"].items()]


def play(case: Case) -> list[Outcome]:
    """Play a trace and return what came out of each step."""
    parties = case.parties
    local, remote = parties.peers[case.role], parties.peers[case.role.other]
    session = Session(case.role, parties.channel, local, remote, parties.session, case.settings)
    return [_play_step(session, step) for step in case.steps]


def event_json(event: Event) -> dict[str, Any]:
    """Return a report in the shape of the samples."""
    members: dict[str, Any]
    match event:
        case MessageReceived(topic, index, payload):
            members = {"topic": topic, "index": index, "payload_hex": payload.hex()}
        case MessageDelivered(topic, index):
            members = {"topic": topic, "index": index}
        case MessageRejected(topic, index, code):
            members = {"topic": topic, "index": index, "code": code}
        case TopicRequested(topic, name):
            members = {"topic": topic, "name": name}
        case TopicRefused(topic, code):
            members = {"topic": topic, "code": code}
        case PeerLeft(reason):
            members = {"reason": reason}
        case PeerError(code, is_fatal, detail):
            members = {"code": code, "fatal": is_fatal, "detail": detail}
        case SessionError(category, code, topic, index):
            members = {"category": category.value, "code": code.value, "topic": topic, "index": index}
        case _:
            members = {each.name: getattr(event, each.name) for each in fields(event)}
    return {"event": type(event).__name__, **{key: value for key, value in members.items() if value is not None}}


def _play_step(session: Session, step: Step) -> Outcome:
    raises = None
    try:
        step.run(session, step.at)
    except LocalError as error:
        raises = error.code.value
    events, clean = [], None
    while (event := session.next_event()) is not None:
        if isinstance(event, SessionClosed):
            clean = event.is_clean
        else:
            events.append(event_json(event))
    wire = b"".join(session.data_to_send())
    return Outcome(wire, events, session.state.value, raises, session.is_closed, clean)


# --- reading ---


def _read_parties(traces: Node) -> Parties:
    names = list(ROLES)
    peers = [traces["peers"][name] for name in names]
    channel = traces["channel"].number(8)
    for peer in peers:
        if peer.number(16) >> 64 != channel:
            raise peer.fail("a peer of the channel")
    if peers[0].value == peers[1].value:
        raise peers[1].fail("another peer than the connector")
    keys = [traces["keys"][name].hex(KEY_BYTES) for name in names]
    session = traces["session"].integer(0, SESSION_MAX)
    return Parties(channel, session, (peers[0].number(16), peers[1].number(16)), (keys[0], keys[1]))


def _read_case(node: Node, parties: Parties) -> Case:
    role = ROLES[node["role"].one_of(*ROLES)]
    keys = parties.keys[role], parties.keys[role.other]
    title = node["title"].text() if node.has("title") else ""
    steps = tuple(Step(step["at"].seconds(), _read_operation(step["do"], keys), step) for step in node["steps"].items())
    return Case(node["id"].text(), title, role, _read_settings(node), parties, steps)


def _read_settings(node: Node) -> Settings:
    """Unknown settings are allowed, misspelt ones are not; a setting that is absent has its default."""
    if not node.has("config"):
        return Settings()
    config = node["config"]
    known = [each.name for each in fields(Settings)]
    for key in config.object():
        if key not in known and (close := get_close_matches(key, known, n=1, cutoff=0.85)):
            raise config.fail(f"{close[0]!r} instead of {printable(key)!r}")
    values: dict[str, Any] = {}
    for key in known:
        if config.has(key):
            values[key] = config[key].value
            try:
                Settings(**{key: values[key]})
            except (TypeError, ValueError) as error:
                raise config[key].fail(str(error).partition("expected ")[2].partition(", found")[0]) from None
    return Settings(**values)


def _read_operation(node: Node, keys: tuple[bytes, bytes]) -> Operation:
    name = node["op"].one_of(*OPERATIONS)
    args = node["args"] if node.has("args") else Node({}, f"{node.path}.args")
    method, readers = OPERATIONS[name]
    given = {parameter: read(args) for parameter, read in readers.items()}
    if name == "secured":
        given = {"tx_key": keys[0], "rx_key": keys[1]}
    elif name == "receive":
        given = {"data": node["bytes_hex"].hex()}
    if name in _TIMELESS:
        return lambda session, _: method(session, **given)
    return lambda session, now: method(session, now=now, **given)


def _topic(args: Node) -> int:
    return args["topic"].any_integer()


def _optional_text(key: str) -> Callable[[Node], str | None]:
    return lambda args: args[key].text() if args.has(key) and args[key].value is not None else None


def _next_index(args: Node) -> int:
    name = next((name for name in _INDEX_NAMES if args.has(name)), _INDEX_NAMES[0])
    return args[name].integer(0, INDEX_MAX)


OPERATIONS: Final[dict[str, tuple[Callable[..., object], dict[str, Callable[[Node], Any]]]]] = {
    "open": (Session.open, {}),
    "secured": (Session.secured, {}),
    "receive": (Session.receive_data, {}),
    "timer": (Session.handle_timer, {}),
    "send": (Session.send, {"topic": _topic, "payload": lambda args: args["payload_hex"].hex()}),
    "register_topic": (Session.register_topic, {"topic": _topic, "name": _optional_text("name")}),
    "deregister_topic": (Session.deregister_topic, {"topic": _topic}),
    "leave": (Session.leave, {"reason": _optional_text("reason")}),
    "ack": (Session.ack, {"topic": _topic, "index": lambda args: args["index"].any_integer()}),
    "consumed": (
        Session.consumed,
        {"count": lambda args: args["count"].integer(0, INTEGER_MAX) if args.has("count") else 1},
    ),
    "connection_lost": (Session.connection_lost, {}),
    "set_next_index": (Session.set_next_index, {"topic": _topic, "index": _next_index}),
    "set_writable": (Session.set_writable, {"is_writable": lambda args: args["writable"].boolean()}),
}
"""By name, the method of a session that it calls, and by parameter how to read it; `secured` and `receive` have theirs elsewhere."""
_TIMELESS: Final = frozenset({"consumed", "set_next_index", "set_writable"})
"""Operations whose methods take no time."""
