# SPDX-License-Identifier: Apache-2.0
"""One session's stream: bytes to verified messages and back. Source: channel_rules 1.2.8 steps 1 to 8."""

from __future__ import annotations

from typing import Final

from validator_channel.base64_text import encode
from validator_channel.counts import Counts
from validator_channel.crypto import CounterExhausted, DecryptError, Opener, ReplayWindow, Sealer
from validator_channel.errors import ErrorCode, Fault, WireError
from validator_channel.ids import INDEX_STEP, MAIN, pack_message_id, unpack_message_id
from validator_channel.limits import INDEX_MAX, TOPIC_MAX, Settings
from validator_channel.timers import FrameTimer
from validator_channel.topics import Received
from validator_channel.wire import (
    GUESSED,
    GUESSED_END,
    GUESSED_START,
    FrameDecoder,
    Guess,
    Kind,
    Message,
    encode_frame,
    message_templates,
    parse_message,
)

_PLACE_MAX: Final = 2**54 - 1
"""Greatest value of topic and index, the part of a message ID that differs within a session."""

_LAST_BEFORE_A_GUESS: Final = INDEX_MAX - INDEX_STEP + 1
"""Indices from here on have no successor in their field."""


class Link:
    """Frames, metadata, keys and counters of a session; `secure` must come before everything else.

    ``frame_timer`` is for the incomplete frame, if there is one.
    """

    def __init__(self, channel: int, session: int, local_peer: int, remote_peer: int, settings: Settings) -> None:
        self._channel = channel
        self._session = session
        self._first_id = pack_message_id(channel, session, MAIN, 0)
        self._local_peer = local_peer
        self._remote_peer = remote_peer
        self._templates = message_templates(local_peer)
        self._decoder = FrameDecoder(settings.max_frame)
        self._window = ReplayWindow(settings.replay_window)
        self._guesses = {start: Guess(kind, remote_peer, self._first_id) for start, kind in GUESSED.items()}
        self._output: list[bytes] = []
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self.frame_timer = FrameTimer(settings.frame_timeout)
        self.counts = Counts()

    def secure(self, tx_key: bytes, rx_key: bytes) -> None:
        """Take the keys. Raises ``ValueError`` for a key that has not 32 bytes."""
        self._sealer, self._opener = Sealer(tx_key, self._local_peer), Opener(rx_key, self._remote_peer)

    def close(self) -> None:
        """Drop the keys and what was received incompletely; the output remains."""
        self._sealer = self._opener = None
        self.frame_timer.stop()
        self._decoder.take_rest()

    def message_id(self, topic: int, index: int) -> int:
        """Return the ID of a message of this session."""
        return self._first_id | topic << 32 | index

    def send(self, kind: Kind, topic: int, index: int, plaintext: bytes, *, is_last: bool = False) -> None:
        """Seal a message under the next counter and queue its frame.

        Raises `Fault` with COUNTER_EXHAUSTED when only the counter of the session's last frame is left. Source: 1.2.4.
        """
        assert self._sealer is not None
        message_id = self._first_id | topic << 32 | index
        try:
            counter, sealed = self._sealer.seal(kind, message_id, plaintext, is_last)
        except CounterExhausted:
            raise Fault(ErrorCode.COUNTER_EXHAUSTED) from None
        self._output.append(encode_frame(self._templates[kind] % (message_id, counter, encode(sealed))))

    def take_output(self) -> list[bytes]:
        """Return the queued frames and forget them."""
        output, self._output = self._output, []
        self.counts.frames_sent += len(output)
        return output

    def feed(self, data: bytes, now: float, frames_max: int | None = None) -> list[bytes]:
        """Return the frames that are complete, at most ``frames_max``; one that begins must end in ``frame_timeout``. Source: 1.2.12."""
        frames = self._decoder.feed(data, frames_max)
        self.counts.frames_received += len(frames)
        if not self._decoder.is_inside_frame:
            self.frame_timer.stop()
        elif frames or not self.frame_timer.is_running:
            self.frame_timer.start(now)
        return frames

    def check_length(self) -> None:
        """Check the length after the last complete frame. Raises `Fault` with BAD_FRAME or FRAME_TOO_LARGE."""
        if self._decoder.error is not None:
            raise Fault(self._decoder.error)

    def open(self, frame: bytes) -> Received:
        """Return the verified message of a frame; its counter is marked as seen.

        Raises `Fault` with the codes of `parse_message`, then WRONG_CHANNEL, WRONG_PEER, WRONG_SESSION, DECRYPT_FAILED. The fault names the
        message if channel and session of its ID are right. Source: 1.2.8 steps 2 to 8.
        """
        assert self._opener is not None
        guess, counter = self._guesses.get(frame[GUESSED_START:GUESSED_END]), self._window.next
        if guess is None or (sealed := guess.read(frame, counter)) is None:
            kind, message_id, counter, sealed = self._parse(frame)
        else:
            kind, message_id = guess.kind, guess.message_id
        topic, index = message_id >> 32 & TOPIC_MAX, message_id & INDEX_MAX
        if guess is not None and index < _LAST_BEFORE_A_GUESS:
            guess.message_id = message_id + INDEX_STEP
        try:
            plaintext = self._opener.open(kind, message_id, counter, sealed)
        except DecryptError:
            raise Fault(ErrorCode.DECRYPT_FAILED, (topic, index), is_answered=kind is not Kind.ERROR) from None
        return Received(kind, topic, index, plaintext, self._window.mark(counter))

    def _parse(self, frame: bytes) -> tuple[Kind, int, int, bytes]:
        """Return kind, message ID, counter and ciphertext of a message that is for this session."""
        try:
            message = parse_message(frame)
        except WireError as error:
            raise Fault(error.code, is_answered=not error.claims_error) from None
        kind, peer, message_id, counter, sealed = message
        if message_id ^ self._first_id > _PLACE_MAX or peer != self._remote_peer:
            raise self._misdirected(message)
        return kind, message_id, counter, sealed

    def _misdirected(self, message: Message) -> Fault:
        """Return the fault of a message that belongs to another channel, peer or session."""
        parts = unpack_message_id(message.id)
        is_ours = parts.channel == self._channel and parts.session == self._session
        named = (parts.topic, parts.index) if is_ours else None
        if parts.channel != self._channel:
            code = ErrorCode.WRONG_CHANNEL
        elif message.peer != self._remote_peer:
            code = ErrorCode.WRONG_PEER
        else:
            code = ErrorCode.WRONG_SESSION
        return Fault(code, named, is_answered=message.kind is not Kind.ERROR)
