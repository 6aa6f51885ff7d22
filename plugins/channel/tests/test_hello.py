# SPDX-License-Identifier: Apache-2.0
"""The hello exchange: agreement, the order of checks, and every way to cheat. Source: channel_rules 1.2.6, 3.6."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from channel_world import CHANNEL, PEERS
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from validator_channel.errors import HANDSHAKE, HelloError
from validator_channel.hello import ConnectorHello, Credentials, ListenerHello, Peering
from validator_channel.wire import encode_frame

CLIENT_KEY, SERVER_KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(3))
CLIENT, SERVER = PEERS
STRANGER = CHANNEL << 64 | 1
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


def connector(session: int = 5, ephemeral: int = 7, psk: bytes = bytes(32), **changes: Any) -> ConnectorHello:
    credentials = Credentials(CLIENT_KEY, SERVER_KEY.public_key(), {SERVER}.__contains__, bytes([ephemeral]) * 32)
    return ConnectorHello(Peering(CLIENT, SERVER, psk), session, replace(credentials, **changes))


def listener(ephemeral: int = 8, peering: Peering | None = None, **changes: Any) -> ListenerHello:
    credentials = Credentials(SERVER_KEY, CLIENT_KEY.public_key(), {CLIENT}.__contains__, bytes([ephemeral]) * 32)
    return ListenerHello({CHANNEL: peering or Peering(SERVER, CLIENT)}.get, replace(credentials, **changes))


def altered(frame: bytes, **members: Any) -> bytes:
    return encode_frame(json.dumps({**json.loads(frame[4:]), **members}).encode())


def without(frame: bytes, name: str) -> bytes:
    return encode_frame(
        json.dumps({key: value for key, value in json.loads(frame[4:]).items() if key != name}).encode()
    )


def code_of(side: ConnectorHello | ListenerHello, data: bytes) -> str:
    with pytest.raises(HelloError) as raised:
        side.receive_data(data)
    assert side.result is None
    assert raised.value.code in HANDSHAKE
    return raised.value.code.value


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_both_sides_agree_and_the_rest_is_kept() -> None:
    client, server = connector(), listener()
    output = server.receive_data(client.start())
    assert (client.result, server.result) == (None, None)
    auth = client.receive_data(output)
    assert server.receive_data(auth[:9]) == b""
    assert server.receive_data(auth[9:] + b"\0\0\0\0rest") == b""
    assert server.receive_data(b" more") == b""
    one, two = client.result, server.result
    assert one is not None
    assert two is not None
    assert (one.tx_key, one.rx_key) == (two.rx_key, two.tx_key)
    assert one.tx_key != one.rx_key
    assert one.session_instance_id == two.session_instance_id
    assert (
        (one.local_peer, one.remote_peer, one.session)
        == (two.remote_peer, two.local_peer, two.session)
        == (CLIENT, SERVER, 5)
    )
    assert server.take_rest() == b"\0\0\0\0rest more"
    assert client.take_rest() == server.take_rest() == b""
    assert repr(one.tx_key) not in repr(one)


@pytest.mark.parametrize("other", [{"session": 6}, {"ephemeral": 9}, {"psk": b"p" * 32}])
def test_every_input_changes_the_keys(other: dict[str, Any]) -> None:
    instances = set()
    for changes in ({}, other):
        client, server = connector(**changes), listener(peering=Peering(SERVER, CLIENT, changes.get("psk", bytes(32))))
        server.receive_data(client.receive_data(server.receive_data(client.start())))
        assert server.result is not None
        instances.add(server.result.session_instance_id)
    assert len(instances) == 2


def test_different_psk_gives_different_keys() -> None:
    client, server = connector(psk=b"a" * 32), listener()
    server.receive_data(client.receive_data(server.receive_data(client.start())))
    assert client.result is not None
    assert server.result is not None
    assert client.result.tx_key != server.result.rx_key


BAD_CLIENT_HELLO: list[tuple[dict[str, Any], str]] = [
    ({"v": 2}, "BAD_VERSION"),
    ({"v": 2, "hs": 1}, "BAD_VERSION"),
    ({"v": 1.0}, "BAD_HELLO"),
    ({"v": True}, "BAD_HELLO"),
    ({"hs": "SERVER_HELLO"}, "BAD_HELLO"),
    ({"hs": None}, "BAD_HELLO"),
    ({"extra": 1}, "BAD_HELLO"),
    ({"channel": f"{CHANNEL:016X}"}, "BAD_HELLO"),
    ({"channel": 5}, "BAD_HELLO"),
    ({"channel": f"{CHANNEL + 1:016x}"}, "BAD_HELLO"),
    ({"peer": f"{CLIENT:032x}"[1:]}, "BAD_HELLO"),
    ({"peer": f"{(CHANNEL + 1) << 64:032x}"}, "BAD_HELLO"),
    ({"session": -1}, "BAD_HELLO"),
    ({"session": 1024}, "BAD_HELLO"),
    ({"session": True}, "BAD_HELLO"),
    ({"session": 5.0}, "BAD_HELLO"),
    ({"session": "5"}, "BAD_HELLO"),
    ({"eph": b64(bytes(31))}, "BAD_HELLO"),
    ({"eph": b64(b"x" * 33)}, "BAD_HELLO"),
    ({"eph": b64(b"x" * 32)[:-1]}, "BAD_HELLO"),
    ({"eph": 1}, "BAD_HELLO"),
    *(({"eph": b64(point)}, "BAD_HELLO") for point in LOW_ORDER),
    ({"peer": f"{STRANGER:032x}"}, "NOT_AUTHORIZED"),
    ({"peer": f"{SERVER:032x}"}, "NOT_AUTHORIZED"),
    ({"channel": f"{CHANNEL + 1:016x}", "peer": f"{(CHANNEL + 1) << 64 | 5:032x}"}, "NOT_AUTHORIZED"),
    ({"peer": f"{STRANGER:032x}", "eph": b64(bytes(32))}, "BAD_HELLO"),
]


@pytest.mark.parametrize(("members", "code"), BAD_CLIENT_HELLO)
def test_bad_client_hello(members: dict[str, Any], code: str) -> None:
    assert code_of(listener(), altered(connector().start(), **members)) == code


@pytest.mark.parametrize(
    ("changes", "peering"),
    [
        ({"is_certified": {STRANGER}.__contains__}, Peering(SERVER, CLIENT)),
        ({}, Peering(SERVER, CLIENT, is_allowed=False)),
        ({}, Peering(SERVER, STRANGER)),
    ],
)
def test_peer_that_is_not_authorized(changes: dict[str, Any], peering: Peering) -> None:
    assert code_of(listener(peering=peering, **changes), connector().start()) == "NOT_AUTHORIZED"


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        (1025).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        encode_frame(b"x"),
        encode_frame(b"[]"),
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_bad_frame(data: bytes) -> None:
    assert code_of(listener(), data) == "BAD_HELLO"
    assert code_of(connector(), data) == "BAD_HELLO"


@pytest.mark.parametrize("name", ["v", "hs", "channel", "peer", "session", "eph"])
def test_missing_member(name: str) -> None:
    assert code_of(listener(), without(connector().start(), name)) == "BAD_HELLO"


def server_hello(client: ConnectorHello) -> bytes:
    return listener().receive_data(client.start())


BAD_SERVER_HELLO: list[tuple[dict[str, Any], str]] = [
    ({"v": 0}, "BAD_VERSION"),
    ({"hs": "CLIENT_AUTH"}, "BAD_HELLO"),
    ({"peer": f"{(CHANNEL + 1) << 64:032x}"}, "BAD_HELLO"),
    ({"peer": f"{STRANGER:032x}"}, "NOT_AUTHORIZED"),
    ({"peer": f"{CLIENT:032x}"}, "NOT_AUTHORIZED"),
    ({"eph": b64(bytes(32))}, "BAD_HELLO"),
    ({"eph": b64(b"\x09" + bytes(31))}, "AUTH_FAILED"),
    ({"sig": b64(bytes(64))}, "AUTH_FAILED"),
    ({"sig": b64(bytes(63))}, "BAD_HELLO"),
    ({"sig": None}, "BAD_HELLO"),
]


@pytest.mark.parametrize(("members", "code"), BAD_SERVER_HELLO)
def test_bad_server_hello(members: dict[str, Any], code: str) -> None:
    client = connector()
    assert code_of(client, altered(server_hello(client), **members)) == code


def test_server_of_another_key_or_certificate() -> None:
    client = connector(remote_key=OTHER_KEY.public_key())
    assert code_of(client, server_hello(client)) == "AUTH_FAILED"
    client = connector(is_certified=lambda _: False)
    assert code_of(client, server_hello(client)) == "NOT_AUTHORIZED"


def test_bad_client_auth() -> None:
    def waiting() -> tuple[ListenerHello, bytes]:
        client, server = connector(), listener()
        return server, client.receive_data(server.receive_data(client.start()))

    for members, code in [
        ({"sig": b64(bytes(64))}, "AUTH_FAILED"),
        ({"sig": ""}, "BAD_HELLO"),
        ({"v": 3}, "BAD_VERSION"),
        ({"x": 1}, "BAD_HELLO"),
    ]:
        server, auth = waiting()
        assert code_of(server, altered(auth, **members)) == code
    server, auth = waiting()
    assert code_of(server, connector().start()) == "BAD_HELLO"
    assert code_of(listener(), auth) == "BAD_HELLO"


def test_reflected_signature_and_replayed_handshake() -> None:
    client, server = connector(), listener()
    hello = client.start()
    answer = server.receive_data(hello)
    reflected = {"v": 1, "hs": "CLIENT_AUTH", "sig": json.loads(answer[4:])["sig"]}
    assert code_of(server, encode_frame(json.dumps(reflected).encode())) == "AUTH_FAILED"
    auth = client.receive_data(answer)
    later = listener(ephemeral=9)
    later.receive_data(hello)
    assert code_of(later, auth) == "AUTH_FAILED"
    assert code_of(connector(ephemeral=9), answer) == "AUTH_FAILED"


def test_both_certificates_are_in_the_transcript() -> None:
    """A middlebox that ends TLS on both sides, with a certificate under its key, breaks both signatures."""
    server = listener(remote_key=OTHER_KEY.public_key())
    client = connector()
    assert code_of(client, server.receive_data(client.start())) == "AUTH_FAILED"


def test_mistakes_of_the_caller() -> None:
    for wrong in (
        lambda: Peering(CLIENT, CLIENT),
        lambda: Peering(CLIENT, SERVER ^ 1 << 64),
        lambda: Peering(CLIENT, SERVER, b"short"),
    ):
        with pytest.raises(ValueError, match="expected"):
            wrong()
    for session in (-1, 1024):
        with pytest.raises(ValueError, match="session"):
            connector(session=session)
    with pytest.raises(ValueError, match="32"):
        ConnectorHello(
            Peering(CLIENT, SERVER), 1, Credentials(CLIENT_KEY, SERVER_KEY.public_key(), set().__contains__, b"short")
        )


@given(st.integers(0, 400), st.integers(1, 255))
def test_hello_with_one_altered_byte_never_agrees_on_other_terms(at: int, flip: int) -> None:
    client, server = connector(), listener()
    frame = bytearray(client.start())
    frame[4 + at % (len(frame) - 4)] ^= flip
    try:
        client.receive_data(server.receive_data(bytes(frame)))
    except HelloError as error:
        code = error.code
    else:
        code = None
    assert code in HANDSHAKE or (code is None and client.result is None)
