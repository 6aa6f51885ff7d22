# SPDX-License-Identifier: Apache-2.0
"""Reads and plays state-machine traces: operations of a session, and what came out of each. Source: traces FORMAT, "Channel"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final

from validator_channel.errors import LocalError
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
from validator_channel.ids import Role
from validator_channel.limits import INDEX_MAX, INTEGER_MAX, KEY_BYTES, SESSION_MAX, Settings
from validator_channel.printing import printable
from validator_channel.replay.document import Node
from validator_channel.session import Session

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
        """Return the step as FORMAT prints it."""
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
    name = node["op"].one_of(*_OPERATIONS)
    return _OPERATIONS[name](node["args"] if node.has("args") else Node({}, f"{node.path}.args"), node, keys)


def _optional_text(args: Node, key: str) -> str | None:
    return args[key].text() if args.has(key) and args[key].value is not None else None


def _open(_args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    return Session.open


def _secured(_args: Node, _do: Node, keys: tuple[bytes, bytes]) -> Operation:
    return lambda session, now: session.secured(*keys, now)


def _receive(_args: Node, do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    data = do["bytes_hex"].hex()
    return lambda session, now: session.receive_data(data, now)


def _timer(_args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    return Session.handle_timer


def _send(args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    topic, payload = args["topic"].any_integer(), args["payload_hex"].hex()
    return lambda session, now: session.send(topic, payload, now)


def _register_topic(args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    topic, name = args["topic"].any_integer(), _optional_text(args, "name")
    return lambda session, now: session.register_topic(topic, name, now=now)


def _deregister_topic(args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    topic = args["topic"].any_integer()
    return lambda session, now: session.deregister_topic(topic, now)


def _leave(args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    reason = _optional_text(args, "reason")
    return lambda session, now: session.leave(now, reason)


def _ack(args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    topic, index = args["topic"].any_integer(), args["index"].any_integer()
    return lambda session, now: session.ack(topic, index, now)


def _consumed(args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    count = args["count"].integer(0, INTEGER_MAX) if args.has("count") else 1
    return lambda session, _: session.consumed(count)


def _connection_lost(_args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    return Session.connection_lost


def _set_next_index(args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    name = next((name for name in _INDEX_NAMES if args.has(name)), _INDEX_NAMES[0])
    topic, index = args["topic"].any_integer(), args[name].integer(0, INDEX_MAX)
    return lambda session, _: session.set_next_index(topic, index)


def _set_writable(args: Node, _do: Node, _keys: tuple[bytes, bytes]) -> Operation:
    is_writable = args["writable"].boolean()
    return lambda session, _: session.set_writable(is_writable)


_OPERATIONS: Final[dict[str, Callable[[Node, Node, tuple[bytes, bytes]], Operation]]] = {
    "open": _open,
    "secured": _secured,
    "receive": _receive,
    "timer": _timer,
    "send": _send,
    "register_topic": _register_topic,
    "deregister_topic": _deregister_topic,
    "leave": _leave,
    "ack": _ack,
    "consumed": _consumed,
    "connection_lost": _connection_lost,
    "set_next_index": _set_next_index,
    "set_writable": _set_writable,
}
