# SPDX-License-Identifier: Apache-2.0
"""Plays a recorded handshake between both sides of the hello exchange. Source: channel_rules 1.2.6."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from validator_channel.crypto import Transcript, client_signs, pseudorandom_key, server_signs
from validator_channel.errors import HelloError
from validator_channel.hello import ConnectorHello, Credentials, ListenerHello, Peering, spki
from validator_channel.ids import channel_of
from validator_channel.limits import KEY_BYTES, LENGTH_BYTES, SESSION_MAX
from validator_channel.replay.document import Node
from validator_channel.strict_json import parse_json

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
        Credentials(client_key, server_key.public_key(), {server}, client_ephemeral),
    )
    listener = ListenerHello(
        {channel_of(client): Peering(server, client, psk)},
        Credentials(server_key, client_key.public_key(), {client}, server_ephemeral),
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
