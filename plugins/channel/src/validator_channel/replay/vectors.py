# SPDX-License-Identifier: Apache-2.0
"""Recomputes the groups of a file that are not traces: identifiers, sealed messages, handshakes, replay windows, schedules.

A check computes members of an entry from its inputs; a member that the entry does not have is not compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from validator_channel.crypto import (
    DecryptError,
    Opener,
    ReplayWindow,
    Transcript,
    associated_data,
    client_signs,
    nonce,
    pseudorandom_key,
    server_signs,
)
from validator_channel.errors import HelloError, WireError, printable
from validator_channel.hello import ConnectorHello, Credentials, ListenerHello, Peering, spki
from validator_channel.limits import (
    CHANNEL_MAX,
    COUNT_MAX,
    COUNTER_MAX,
    INDEX_MAX,
    KEY_BYTES,
    LENGTH_BYTES,
    SESSION_MAX,
    TOPIC_MAX,
    Settings,
)
from validator_channel.replay.cases import Node
from validator_channel.wire import (
    INDEX_STEP,
    LAST_INDEX,
    NO_MESSAGE,
    FrameDecoder,
    Kind,
    Message,
    Role,
    channel_of,
    encode_base64,
    format_channel,
    format_id,
    pack_message_id,
    parse_json,
    parse_message,
    unpack_message_id,
)

_MESSAGES: Final = ("CLIENT_HELLO", "SERVER_HELLO", "CLIENT_AUTH")


def handshake(node: Node) -> dict[str, Any]:
    """Return every computed member of a handshake, from its seeds, ephemeral private keys, session and peers. Raises `DocumentError`."""
    session = node["session"].integer(0, SESSION_MAX)
    client, server = (node[name]["peer"].number(16) for name in _MESSAGES[:2])
    if client == server or channel_of(client) != channel_of(server):
        raise node["SERVER_HELLO"]["peer"].fail("the other peer of the client's channel")
    client_key, server_key = (
        Ed25519PrivateKey.from_private_bytes(node[f"{side}_identity_seed"].hex(KEY_BYTES))
        for side in ("client", "server")
    )
    client_ephemeral, server_ephemeral = (
        node[f"{side}_ephemeral_private"].hex(KEY_BYTES) for side in ("client", "server")
    )
    psk = node["psk"].hex(KEY_BYTES)
    connector = ConnectorHello(
        Peering(client, server, psk),
        session,
        Credentials(client_key, server_key.public_key(), {server}.__contains__, client_ephemeral),
    )
    listener = ListenerHello(
        {channel_of(client): Peering(server, client, psk)}.get,
        Credentials(server_key, client_key.public_key(), {client}.__contains__, server_ephemeral),
    )
    try:
        frames = [connector.start()]
        frames.append(listener.receive_data(frames[0]))
        frames.append(connector.receive_data(frames[1]))
        listener.receive_data(frames[2])
    except HelloError as error:
        raise node.fail(f"a handshake that succeeds, not {error}") from None
    found = _intermediate(session, client, server, (client_key, server_key), client_ephemeral, server_ephemeral, psk)
    assert connector.result is not None
    assert listener.result is not None
    is_agreed = connector.result.tx_key == listener.result.rx_key and connector.result.rx_key == listener.result.tx_key
    return {
        **dict(zip(_MESSAGES, (parse_json(frame[LENGTH_BYTES:]) for frame in frames), strict=True)),
        **found,
        "key_c2s": connector.result.tx_key.hex() if is_agreed else "no agreement",
        "key_s2c": connector.result.rx_key.hex() if is_agreed else "no agreement",
        "session_instance_id": connector.result.session_instance_id.hex(),
    }


def _intermediate(
    session: int,
    client: int,
    server: int,
    keys: tuple[Ed25519PrivateKey, Ed25519PrivateKey],
    client_ephemeral: bytes,
    server_ephemeral: bytes,
    psk: bytes,
) -> dict[str, Any]:
    """What the exchange computes on its way and does not hand out."""
    publics = [X25519PrivateKey.from_private_bytes(each).public_key() for each in (client_ephemeral, server_ephemeral)]
    raw = [each.public_bytes_raw() for each in publics]
    spkis = [spki(each.public_key()) for each in keys]
    shared = X25519PrivateKey.from_private_bytes(client_ephemeral).exchange(X25519PublicKey.from_public_bytes(raw[1]))
    digest = Transcript(channel_of(client), client, server, session, raw[0], raw[1], spkis[0], spkis[1]).digest()
    return {
        "client_identity_public": keys[0].public_key().public_bytes_raw().hex(),
        "server_identity_public": keys[1].public_key().public_bytes_raw().hex(),
        "client_spki_sha256": sha256(spkis[0]).hexdigest(),
        "server_spki_sha256": sha256(spkis[1]).hexdigest(),
        "client_ephemeral_public": raw[0].hex(),
        "server_ephemeral_public": raw[1].hex(),
        "dh": shared.hex(),
        "transcript_hash": digest.hex(),
        "server_sig": keys[1].sign(server_signs(digest)).hex(),
        "client_sig": keys[0].sign(client_signs(digest)).hex(),
        "prk": pseudorandom_key(digest, shared, psk).hex(),
    }


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
        "payload": encode_base64(message.sealed).decode("ascii"),
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
