# SPDX-License-Identifier: Apache-2.0
"""The hello exchange inside TLS: signed ephemeral X25519, ending with one key for each direction. Source: channel_rules 1.2.6.

Each side is fed bytes and returns bytes. A `HelloError` means: close the transport and send nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from validator_channel.crypto import (
    NO_PSK,
    SessionKeys,
    Transcript,
    client_signs,
    key_schedule,
    pseudorandom_key,
    server_signs,
)
from validator_channel.errors import ErrorCode, HelloError, WireError
from validator_channel.limits import HELLO_FRAME_BYTES_MAX, KEY_BYTES, SESSION_MAX, SIGNATURE_BYTES
from validator_channel.wire import (
    VERSION,
    FrameDecoder,
    channel_of,
    check_version,
    decode_base64,
    encode_base64,
    encode_frame,
    encode_json,
    format_channel,
    format_id,
    is_integer,
    parse_channel,
    parse_id,
    parse_json,
)

CLIENT_HELLO: Final = "CLIENT_HELLO"
SERVER_HELLO: Final = "SERVER_HELLO"
CLIENT_AUTH: Final = "CLIENT_AUTH"


@dataclass(frozen=True, slots=True)
class Peering:
    """The two peers of a channel as one side's registry has them.

    ``psk`` has 32 bytes; ``is_allowed`` is whether the remote peer may connect now. Raises ``ValueError`` if both peers are one, if they
    belong to two channels, or for a pre-shared key of another length.
    """

    local_peer: int
    remote_peer: int
    psk: bytes = field(default=NO_PSK, repr=False)
    is_allowed: bool = True

    def __post_init__(self) -> None:
        if self.local_peer == self.remote_peer or channel_of(self.local_peer) != channel_of(self.remote_peer):
            raise ValueError("expected two peers of one channel")
        if len(self.psk) != KEY_BYTES:
            raise ValueError(f"psk: expected {KEY_BYTES} bytes, found {len(self.psk)}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What TLS has proved, and this side's secrets; ``ephemeral`` is 32 fresh random bytes for this handshake alone.

    ``is_certified`` says whether the remote certificate proves a peer ID; both keys are the Ed25519 keys of the two certificates.
    """

    key: Ed25519PrivateKey = field(repr=False)
    remote_key: Ed25519PublicKey
    is_certified: Callable[[int], bool]
    ephemeral: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Secured:
    """The end of a handshake: the keys by direction, and whom they were agreed with."""

    local_peer: int
    remote_peer: int
    session: int
    tx_key: bytes = field(repr=False)
    rx_key: bytes = field(repr=False)
    session_instance_id: bytes


class _Exchange:
    """What both sides share: one frame at a time, an ephemeral key, the result."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._ephemeral = X25519PrivateKey.from_private_bytes(credentials.ephemeral)
        self._decoder = FrameDecoder(HELLO_FRAME_BYTES_MAX)
        self.result: Secured | None = None

    def receive_data(self, data: bytes) -> bytes:
        """Take bytes of the stream and return the bytes to send; ``result`` is set at the end of the exchange.

        Raises `HelloError`: BAD_HELLO for a frame that is empty, longer than 1024 bytes or not strict JSON; BAD_VERSION; BAD_HELLO for any
        other deviation from the shape, also for an ephemeral key of low order and a peer of another channel; NOT_AUTHORIZED;
        AUTH_FAILED for a wrong signature. Source: 1.2.6 "Check order".
        """
        output = b""
        while self.result is None:
            frames = self._decoder.feed(data, frames_max=1)
            data = b""
            if self._decoder.error is not None:
                raise HelloError(ErrorCode.BAD_HELLO)
            if not frames:
                break
            output += self._receive(frames[0])
        else:
            self._decoder.feed(data, frames_max=0)
        return output

    def take_rest(self) -> bytes:
        """Return the bytes after the exchange, which belong to the session, and forget them."""
        return self._decoder.take_rest()

    def _receive(self, frame: bytes) -> bytes:
        raise NotImplementedError

    def _public_ephemeral(self) -> bytes:
        return self._ephemeral.public_key().public_bytes_raw()

    def _shared_secret(self, ephemeral: bytes) -> bytes:
        """Return the X25519 result; an all-zero one is refused (RFC 7748 section 6.1)."""
        try:
            return self._ephemeral.exchange(X25519PublicKey.from_public_bytes(ephemeral))
        except ValueError:
            raise HelloError(ErrorCode.BAD_HELLO) from None

    def _check_authorized(self, peering: Peering | None, peer: int) -> Peering:
        if peering is None:
            detail = f"no peer has the channel {format_channel(channel_of(peer))}"
        elif peer != peering.remote_peer:
            detail = f"its channel is another peer's, {format_id(peering.remote_peer)}"
        elif not self._credentials.is_certified(peer):
            detail = "the certificate does not name this peer, or its key is none of the peer's pins"
        elif not peering.is_allowed:
            detail = "the peer is disabled"
        else:
            return peering
        raise HelloError(ErrorCode.NOT_AUTHORIZED, detail, peer)

    def _verify(self, signature: bytes, signed: bytes) -> None:
        try:
            self._credentials.remote_key.verify(signature, signed)
        except InvalidSignature:
            raise HelloError(ErrorCode.AUTH_FAILED) from None


class ConnectorHello(_Exchange):
    """The connector's side: `start`, then `receive_data` until ``result``.

    Raises ``ValueError`` for a session ID outside 0 to 1023, then for an ephemeral key that has not 32 bytes.
    """

    def __init__(self, peering: Peering, session: int, credentials: Credentials) -> None:
        if not 0 <= session <= SESSION_MAX:
            raise ValueError(f"session: expected 0 to {SESSION_MAX}, found {session}")
        super().__init__(credentials)
        self._peering = peering
        self._session = session

    def start(self) -> bytes:
        """Return the frame of CLIENT_HELLO."""
        return _hello_frame(
            CLIENT_HELLO,
            channel=format_channel(channel_of(self._peering.local_peer)),
            peer=format_id(self._peering.local_peer),
            session=self._session,
            eph=encode_base64(self._public_ephemeral()).decode("ascii"),
        )

    def _receive(self, frame: bytes) -> bytes:
        peer, ephemeral, signature = _read_hello(frame, SERVER_HELLO)
        local = self._peering.local_peer
        if channel_of(peer) != channel_of(local):
            raise HelloError(ErrorCode.BAD_HELLO)
        shared_secret = self._shared_secret(ephemeral)
        self._check_authorized(self._peering, peer)
        digest = Transcript(
            channel_of(local),
            local,
            peer,
            self._session,
            self._public_ephemeral(),
            ephemeral,
            spki(self._credentials.key.public_key()),
            spki(self._credentials.remote_key),
        ).digest()
        self._verify(signature, server_signs(digest))
        keys = key_schedule(pseudorandom_key(digest, shared_secret, self._peering.psk))
        self.result = Secured(
            local, peer, self._session, keys.client_to_server, keys.server_to_client, keys.session_instance_id
        )
        return _hello_frame(
            CLIENT_AUTH, sig=encode_base64(self._credentials.key.sign(client_signs(digest))).decode("ascii")
        )


class ListenerHello(_Exchange):
    """The listener's side: `receive_data` until ``result``; ``peering_of`` returns the peering of a channel ID that it serves, or None.

    Raises ``ValueError`` for an ephemeral key that has not 32 bytes.
    """

    def __init__(self, peering_of: Callable[[int], Peering | None], credentials: Credentials) -> None:
        super().__init__(credentials)
        self._peering_of = peering_of
        self._pending: tuple[Peering, int, bytes, SessionKeys] | None = None

    def _receive(self, frame: bytes) -> bytes:
        return self._receive_hello(frame) if self._pending is None else self._receive_auth(frame, *self._pending)

    def _receive_hello(self, frame: bytes) -> bytes:
        channel, peer, session, ephemeral = _read_hello(frame, CLIENT_HELLO)
        if channel_of(peer) != channel:
            raise HelloError(ErrorCode.BAD_HELLO)
        shared_secret = self._shared_secret(ephemeral)
        peering = self._check_authorized(self._peering_of(channel), peer)
        digest = Transcript(
            channel,
            peer,
            peering.local_peer,
            session,
            ephemeral,
            self._public_ephemeral(),
            spki(self._credentials.remote_key),
            spki(self._credentials.key.public_key()),
        ).digest()
        keys = key_schedule(pseudorandom_key(digest, shared_secret, peering.psk))
        self._pending = (peering, session, digest, keys)
        return _hello_frame(
            SERVER_HELLO,
            peer=format_id(peering.local_peer),
            eph=encode_base64(self._public_ephemeral()).decode("ascii"),
            sig=encode_base64(self._credentials.key.sign(server_signs(digest))).decode("ascii"),
        )

    def _receive_auth(self, frame: bytes, peering: Peering, session: int, digest: bytes, keys: SessionKeys) -> bytes:
        (signature,) = _read_hello(frame, CLIENT_AUTH)
        self._verify(signature, client_signs(digest))
        self.result = Secured(
            peering.local_peer,
            peering.remote_peer,
            session,
            keys.server_to_client,
            keys.client_to_server,
            keys.session_instance_id,
        )
        return b""


def _read_session(value: Any) -> int:
    if not is_integer(value, 0, SESSION_MAX):
        raise ValueError
    return value


def _read_bytes(length: int) -> Callable[[Any], bytes]:
    def read(text: Any) -> bytes:
        data = decode_base64(text.encode("ascii"))
        if len(data) != length:
            raise ValueError
        return data

    return read


_READERS: Final[dict[str, dict[str, Callable[[Any], Any]]]] = {
    CLIENT_HELLO: {"channel": parse_channel, "peer": parse_id, "session": _read_session, "eph": _read_bytes(KEY_BYTES)},
    SERVER_HELLO: {"peer": parse_id, "eph": _read_bytes(KEY_BYTES), "sig": _read_bytes(SIGNATURE_BYTES)},
    CLIENT_AUTH: {"sig": _read_bytes(SIGNATURE_BYTES)},
}
"""The members of each hello besides version and name, and how to read them."""


def _read_hello(frame: bytes, name: str) -> list[Any]:
    """Return the members of a hello. Raises `HelloError` with BAD_VERSION for another version, otherwise with BAD_HELLO."""
    readers = _READERS[name]
    try:
        value = parse_json(frame)
        check_version(value, ErrorCode.BAD_HELLO)
        if value.keys() != {"v", "hs", *readers} or value["hs"] != name:
            raise ValueError
        return [read(value[member]) for member, read in readers.items()]
    except WireError as error:
        raise HelloError(error.code) from None
    except (AttributeError, TypeError, ValueError):  # a member of another type, or of another form
        raise HelloError(ErrorCode.BAD_HELLO) from None


def _hello_frame(name: str, **members: str | int) -> bytes:
    return encode_frame(encode_json({"v": VERSION, "hs": name, **members}))


def spki(key: Ed25519PublicKey) -> bytes:
    """Return the SubjectPublicKeyInfo of a key in DER."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
