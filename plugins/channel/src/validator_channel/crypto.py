# SPDX-License-Identifier: Apache-2.0
"""Sealing under counters, the replay window, and the keys of a handshake. Source: channel_rules 1.2.4, 1.2.6."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from hashlib import sha256
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from validator_channel.limits import COUNTER_MAX, INSTANCE_ID_BYTES, KEY_BYTES
from validator_channel.wire import Kind

NO_PSK: Final = bytes(KEY_BYTES)
"""The pre-shared key when none is configured."""

nonce: Final = Struct("<4xQ").pack
"""Return the 12-byte nonce of a frame counter: 4 zero bytes, then the counter as 64 bits, little-endian. Source: 1.2.4."""

_KIND_CODES: Final = {kind: code for code, kind in enumerate(Kind, start=1)}
_AAD_PREFIX: Final = b"channel/1\0"
_TRANSCRIPT_PREFIX: Final = b"channel/1 transcript\0"
_SIGNED_PREFIXES: Final = (b"channel/1 client\0", b"channel/1 server\0")


class DecryptError(Exception):
    """The tag of a sealed payload is wrong."""


class CounterExhausted(Exception):
    """No frame counter is left for this frame."""


def associated_data(kind: Kind, peer: int, message_id: int) -> bytes:
    """Return the 43 bytes that a tag covers besides the ciphertext: prefix, kind code, sender and message ID. Source: 1.2.4."""
    return _associated_starts(peer)[kind] + message_id.to_bytes(16, "big")


def _associated_starts(peer: int) -> dict[Kind, bytes]:
    """Return the part of the associated data before the message ID, which is constant for a sender and a kind."""
    return {kind: _AAD_PREFIX + bytes([code]) + peer.to_bytes(16, "big") for kind, code in _KIND_CODES.items()}


class Sealer:
    """Seals the frames of one direction, each under the next counter; one owner, never copied or stored.

    ``key`` has 32 bytes. Raises ``ValueError`` for another length.
    """

    __slots__ = ("_associated_starts", "_counter", "_encrypt")

    def __init__(self, key: bytes, peer: int) -> None:
        self._encrypt = ChaCha20Poly1305(key).encrypt
        self._associated_starts = _associated_starts(peer)
        self._counter = 0

    def seal(self, kind: Kind, message_id: int, plaintext: bytes, is_last: bool = False) -> tuple[int, bytes]:
        """Return the counter used and the ciphertext with its tag.

        Raises `CounterExhausted` at 2^53-1, the counter that only the last frame of a session may use (``is_last``). Source: 1.2.4.
        """
        counter = self._counter
        if counter >= COUNTER_MAX and (counter > COUNTER_MAX or not is_last):
            raise CounterExhausted
        self._counter = counter + 1
        associated = self._associated_starts[kind] + message_id.to_bytes(16, "big")
        return counter, self._encrypt(nonce(counter), plaintext, associated)


class Opener:
    """Opens the frames of the peer's direction. ``key`` has 32 bytes. Raises ``ValueError`` for another length."""

    __slots__ = ("_associated_starts", "_decrypt")

    def __init__(self, key: bytes, peer: int) -> None:
        self._decrypt = ChaCha20Poly1305(key).decrypt
        self._associated_starts = _associated_starts(peer)

    def open(self, kind: Kind, message_id: int, counter: int, sealed: bytes) -> bytes:
        """Return the plaintext. Raises `DecryptError` unless the tag covers exactly these values. Source: 1.2.4."""
        associated = self._associated_starts[kind] + message_id.to_bytes(16, "big")
        try:
            return self._decrypt(nonce(counter), sealed, associated)
        except InvalidTag:
            raise DecryptError from None


class ReplayWindow:
    """The counters seen lately: ``size`` marks that end at the highest counter. Source: 1.2.4.

    ``next`` is the counter of the next frame if none is lost.
    """

    __slots__ = ("_all_marks", "_marks", "_run", "_size", "next")

    def __init__(self, size: int) -> None:
        self._size = size
        self._all_marks = (1 << size) - 1
        self._marks = 0  # bit n is the counter next - 1 - n, without the counters of the run
        self._run = 0  # the last counters that came one after the other, whose marks are not made yet
        self.next = 0

    def mark(self, counter: int) -> bool:
        """Mark a counter whose tag was verified, and return whether it was fresh.

        Fresh is a counter above the highest one, or less than ``size`` below it and not marked yet.
        """
        if counter == self.next:
            self.next += 1
            self._run += 1
            return True
        self._shift(self._run)
        self._marks |= (1 << min(self._run, self._size)) - 1
        self._run = 0
        ahead = counter - self.next + 1
        if ahead > 0:
            self._shift(ahead)
            self._marks |= 1
            self.next = counter + 1
            return True
        bit = 1 << -ahead if -ahead < self._size else 0
        is_fresh = bit != 0 and not self._marks & bit
        self._marks |= bit
        return is_fresh

    def _shift(self, count: int) -> None:
        """Move the marks; the count may be as large as 2^53, so shift only within the window."""
        self._marks = self._marks << count & self._all_marks if count < self._size else 0


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """What a handshake yields: one key per direction, and the session instance ID, which is not secret."""

    client_to_server: bytes = field(repr=False)
    server_to_client: bytes = field(repr=False)
    session_instance_id: bytes


@dataclass(frozen=True, slots=True)
class Transcript:
    """What both ends of a handshake sign; keys are SubjectPublicKeyInfo in DER, ephemeral keys 32 bytes."""

    channel: int
    client: int
    server: int
    session: int
    client_ephemeral: bytes
    server_ephemeral: bytes
    client_spki: bytes
    server_spki: bytes

    def digest(self) -> bytes:
        """Return the 32-byte transcript hash. Source: 1.2.6."""
        return sha256(
            _TRANSCRIPT_PREFIX
            + self.channel.to_bytes(8, "big")
            + self.client.to_bytes(16, "big")
            + self.server.to_bytes(16, "big")
            + self.session.to_bytes(2, "big")
            + self.client_ephemeral
            + self.server_ephemeral
            + sha256(self.client_spki).digest()
            + sha256(self.server_spki).digest()
        ).digest()


def client_signs(digest: bytes) -> bytes:
    """Return the bytes that the client signs. Source: 1.2.6."""
    return _SIGNED_PREFIXES[0] + digest


def server_signs(digest: bytes) -> bytes:
    """Return the bytes that the server signs. Source: 1.2.6."""
    return _SIGNED_PREFIXES[1] + digest


def pseudorandom_key(digest: bytes, shared_secret: bytes, psk: bytes = NO_PSK) -> bytes:
    """Return HKDF-Extract of the X25519 result and the pre-shared key, with the transcript hash as salt. Source: 1.2.6; RFC 5869, 2.2."""
    return hmac.digest(digest, shared_secret + psk, "sha256")


def key_schedule(prk: bytes) -> SessionKeys:
    """Return the keys of a session from the pseudorandom key. Source: 1.2.6; RFC 5869 section 2.3."""
    return SessionKeys(
        _expand(prk, b"channel/1 key c2s", KEY_BYTES),
        _expand(prk, b"channel/1 key s2c", KEY_BYTES),
        _expand(prk, b"channel/1 session", INSTANCE_ID_BYTES),
    )


def _expand(prk: bytes, info: bytes, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, info).derive(prk)
