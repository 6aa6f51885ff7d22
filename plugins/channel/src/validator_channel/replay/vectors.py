# SPDX-License-Identifier: Apache-2.0
"""Recomputes the groups of a file that are not traces: identifiers, sealed messages, handshakes, replay windows, schedules.

A check computes members of an entry from its inputs; a member that the entry does not have is not compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from validator_channel.crypto import DecryptError, Opener, ReplayWindow, associated_data, nonce
from validator_channel.errors import WireError
from validator_channel.ids import (
    INDEX_STEP,
    LAST_INDEX,
    NO_MESSAGE,
    Role,
    channel_of,
    format_channel,
    format_id,
    pack_message_id,
    unpack_message_id,
)
from validator_channel.limits import (
    CHANNEL_MAX,
    COUNT_MAX,
    COUNTER_MAX,
    INDEX_MAX,
    KEY_BYTES,
    SESSION_MAX,
    TOPIC_MAX,
    Settings,
)
from validator_channel.printing import printable
from validator_channel.replay.document import Node
from validator_channel.replay.handshakes import handshake
from validator_channel.strict_json import encode_base64
from validator_channel.wire import FrameDecoder, Kind, Message, parse_message

SKIPPED: Final = {
    "tls_cases": "needs TLS connections: see tests/test_net_listener_cases.py and tests/test_net_attack_cases.py",
    "session_manager_cases": "needs a session manager: see tests/test_net_session_cases.py",
    "gateway_cases": "needs the gateway: see tests/test_gateway_cases.py",
}
"""Groups that describe cases of other parts, and why they are skipped."""


class Result(NamedTuple):
    """One checked entry: ``difference`` is None if it passes."""

    name: str
    difference: str | None


def check_vectors(document: Node) -> Iterator[Result]:
    """Yield a result for each entry of the known groups, in the order of the file's groups. Raises `DocumentError`."""
    for path, compute in _GROUPS.items():
        group = _group(document, path)
        if group is not None:
            for node in [group] if isinstance(group.value, dict) else group.items():
                yield Result(_name(document, node), _difference(node, compute(node)))


def skipped(document: Node) -> Iterator[tuple[str, str]]:
    """Yield each entry of the groups that other parts will play, with the reason. Raises `DocumentError`."""
    for group, reason in SKIPPED.items():
        if document.has(group):
            for node in document[group].items():
                yield printable(node["id"].text()), reason


def _group(document: Node, path: str) -> Node | None:
    node = document
    for key in path.split("."):
        if not node.has(key):
            return None
        node = node[key]
    return node


def _name(document: Node, node: Node) -> str:
    name = node.path.removeprefix(f"{document.path}.")
    title = node.object().get("name")
    return f"{name} {printable(title)}" if isinstance(title, str) else name


def _difference(node: Node, found: dict[str, Any]) -> str | None:
    for key, value in found.items():
        if node.has(key) and not _is_equal(node[key].value, value):
            return f"{key}: expected {json.dumps(node[key].value)}, got {json.dumps(value)}"
    return None


def _is_equal(wanted: Any, found: Any) -> bool:
    """Return whether two values are equal; seconds that are computed in another order may differ by rounding."""
    if isinstance(found, float) and (type(wanted) is float or (type(wanted) is int and abs(wanted) <= COUNTER_MAX)):
        return math.isclose(wanted, found, rel_tol=1e-9)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(wanted) == len(found) and all(map(_is_equal, wanted, found))
    return bool(wanted == found)


def _message_id(node: Node) -> dict[str, Any]:
    channel = node["channel"].number(8)
    session, topic = node["session"].integer(0, SESSION_MAX), node["topic"].integer(0, TOPIC_MAX)
    index = node["index"].integer(0, INDEX_MAX)
    packed = pack_message_id(channel, session, topic, index)
    parts = unpack_message_id(packed)
    return {
        "id": format_id(packed),
        "low64": format_channel(packed & CHANNEL_MAX),
        "channel": format_channel(parts.channel),
        "session": parts.session,
        "topic": parts.topic,
        "index": parts.index,
    }


def _peer_id(node: Node) -> dict[str, Any]:
    peer = node["peer"].number(16)
    return {"channel": format_channel(channel_of(peer)), "local": format_channel(peer & CHANNEL_MAX)}


def _index_rule(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"reserved": NO_MESSAGE}
    for role in Role:
        name = role.name.lower()
        count = len(list(node[f"{name}_first"].items())) if node.has(f"{name}_first") else 0
        found[f"{name}_first"] = [role + INDEX_STEP * at for at in range(count)]
        found[f"{name}_last"] = LAST_INDEX[role]
    return found


def _nonce(node: Node) -> dict[str, Any]:
    return {"nonce": nonce(node["ctr"].integer(0, CHANNEL_MAX)).hex()}


def _aad(node: Node) -> dict[str, Any]:
    kind = Kind(node["kind"].one_of(*Kind))
    aad = associated_data(kind, node["peer"].number(16), node["id"].number(16))
    return {"aad": aad.hex(), "kind_code": _code(kind)}


def _kind_codes(node: Node) -> dict[str, Any]:
    return {key: _code(Kind(Node(key, f"{node.path}.{printable(key)}").one_of(*Kind))) for key in node.object()}


def _code(kind: Kind) -> int:
    return associated_data(kind, 0, 0)[len(b"channel/1\0")]


def _sealed(node: Node) -> dict[str, Any]:
    """Sealing is deterministic: a payload that opens to the plaintext is the one that sealing yields."""
    body = node["example_json"].utf8()
    try:
        message = parse_message(body)
    except WireError as error:
        return {"example_json": error.code.value}
    kind, counter = Kind(node["kind"].one_of(*Kind)), node["ctr"].integer(0, COUNTER_MAX)
    session, topic = node["session"].integer(0, SESSION_MAX), node["topic"].integer(0, TOPIC_MAX)
    message_id = pack_message_id(channel_of(message.peer), session, topic, node["index"].integer(0, INDEX_MAX))
    if message != Message(kind, message.peer, message_id, counter, message.sealed):
        return {"example_json": "other metadata"}
    found = {
        "nonce": nonce(counter).hex(),
        "aad": associated_data(kind, message.peer, message_id).hex(),
        "payload": encode_base64(message.sealed),
    }
    try:
        opener = Opener(node["key"].hex(KEY_BYTES), message.peer)
        found["plaintext"] = opener.open(kind, message_id, counter, message.sealed).hex()
    except DecryptError:
        found["plaintext"] = "DECRYPT_FAILED"
    if node.has("example_frame_hex"):
        frame = node["example_frame_hex"].hex()
        is_body = FrameDecoder(max(1, len(body))).feed(frame) == [body]
        found["example_frame_hex"] = frame.hex() if is_body else "another body"
    return found


def _replay_window(node: Node) -> dict[str, Any]:
    window = ReplayWindow(node["size"].integer(1, COUNT_MAX))
    sequence = []
    for entry in node["sequence"].items():
        fresh = window.mark(entry["ctr"].integer(0, COUNTER_MAX))
        sequence.append({**entry.object(), "fresh": fresh} if entry.has("fresh") else entry.object())
    return {"sequence": sequence}


def _retransmission(node: Node) -> dict[str, Any]:
    names = ("ack_timeout", "backoff", "max_ack_timeout", "max_retries")
    try:
        settings = Settings(**{name: node[name].value for name in names})
    except (TypeError, ValueError) as error:
        raise node.fail(str(error)) from None
    times = [0.0]
    for transmission in range(1, settings.max_retries + 2):
        times.append(times[-1] + settings.interval(transmission))
    return {"sends_at": times[:-1], "fails_at": times[-1]}


_GROUPS: Final[dict[str, Callable[[Node], dict[str, Any]]]] = {
    "identifiers.message_id": _message_id,
    "identifiers.peer_id": _peer_id,
    "identifiers.index_rule": _index_rule,
    "aead.channel.kind_codes": _kind_codes,
    "aead.channel.nonces": _nonce,
    "aead.channel.aads": _aad,
    "aead.channel.sealed": _sealed,
    "handshake.vectors": handshake,
    "replay_window.vectors": _replay_window,
    "retransmission.vectors": _retransmission,
}
