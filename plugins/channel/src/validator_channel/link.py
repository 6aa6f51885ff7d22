# SPDX-License-Identifier: Apache-2.0
"""One session's stream: bytes to verified messages and back. Source: channel_rules 1.2.8 steps 1 to 8, 5.2 "Metrics"."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from validator_channel.crypto import CounterExhausted, DecryptError, Opener, ReplayWindow, Sealer
from validator_channel.errors import ErrorCode, Fault, WireError
from validator_channel.limits import GUESSES_MAX, INDEX_MAX, TOPIC_MAX, Settings
from validator_channel.wire import (
    GUESSED,
    GUESSED_BYTES,
    INDEX_STEP,
    MAIN,
    FrameDecoder,
    Guess,
    Kind,
    Message,
    before_index,
    encode_base64,
    encode_frame,
    message_templates,
    pack_message_id,
    parse_message,
    unpack_message_id,
)


@dataclass(slots=True)
class Counts:
    """Frames in both directions, and those that were not plain progress.

    ``stale`` are the frames that are charged to the budget: duplicates, late answers, unknown topics. ``refused`` are our non-fatal ERRORs
    by code.
    """

    frames_received: int = 0
    frames_sent: int = 0
    retransmissions: int = 0
    stale: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        self.frames_received += other.frames_received
        self.frames_sent += other.frames_sent
        self.retransmissions += other.retransmissions
        self.stale += other.stale
        self.refused.update(other.refused)

    def flat(self) -> dict[str, int]:
        """Return the counts under flat names."""
        flat = {
            "frames_received": self.frames_received,
            "frames_sent": self.frames_sent,
            "retransmissions": self.retransmissions,
            "stale": self.stale,
        }
        return flat | {f"refused.{code}": count for code, count in self.refused.items()}

    def line(self) -> str:
        """Return the counts of frames for a log line."""
        return f"received={self.frames_received} sent={self.frames_sent} retransmitted={self.retransmissions} stale={self.stale}"


_PLACE_MAX: Final = 2**54 - 1
"""Greatest value of topic and index, the part of a message ID that differs within a session."""


@dataclass(slots=True)  # not frozen: that would triple the time to make one, and every frame makes one
class Received:
    """A message of the peer whose tag is verified; ``is_fresh`` is the answer of the replay window."""

    kind: Kind
    topic: int
    index: int
    plaintext: bytes = field(repr=False)
    is_fresh: bool


class FrameTimer:
    """The time that an incomplete frame has left, which stands still while this side does not read: then no peer can end its frame.

    ``deadline`` is when the frame must have ended, in seconds; None if there is none, or while the time stands still.
    """

    def __init__(self, timeout: float) -> None:
        self.deadline: float | None = None
        self._timeout = timeout
        self._is_paused = False
        self._left: float | None = None
        """Seconds that the frame had left at the beginning, or when the time stood still last."""

    @property
    def is_running(self) -> bool:
        """Return whether a frame is incomplete."""
        return self._left is not None

    def start(self, now: float) -> None:
        self._left = self._timeout
        self.deadline = None if self._is_paused else now + self._timeout

    def stop(self) -> None:
        self.deadline = self._left = None

    def set_paused(self, now: float, *, is_paused: bool) -> None:
        """Say whether the time stands still."""
        self._is_paused = is_paused
        if is_paused and self.deadline is not None:
            self._left, self.deadline = self.deadline - now, None
        elif not is_paused and self.deadline is None and self._left is not None:
            self.deadline = now + self._left


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
        self._guesses: dict[bytes, Guess] = {}
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
        self._output.append(encode_frame(self._templates[kind] % (message_id, counter, encode_base64(sealed))))

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
        guess, counter = self._guesses.get(frame[:GUESSED_BYTES]), self._window.next
        if guess is not None and (sealed := guess.read(frame, counter)) is not None:
            kind, topic, index = guess.kind, guess.topic, guess.index
            message_id = self._first_id | topic << 32 | index
        else:
            kind, message_id, counter, sealed = self._parse(frame)
            topic, index = message_id >> 32 & TOPIC_MAX, message_id & INDEX_MAX
            if guess is None and kind in GUESSED:
                guess = self._new_guess(kind, message_id, frame)
        if guess is not None:
            guess.index = index + INDEX_STEP & INDEX_MAX
        try:
            plaintext = self._opener.open(kind, message_id, counter, sealed)
        except DecryptError:
            raise Fault(ErrorCode.DECRYPT_FAILED, (topic, index), is_answered=kind is not Kind.ERROR) from None
        return Received(kind, topic, index, plaintext, self._window.mark(counter))

    def _new_guess(self, kind: Kind, message_id: int, frame: bytes) -> Guess | None:
        """Return a guess for a topic's next message, unless the peer does not write as `encode_message` does."""
        start = before_index(kind, self._remote_peer, message_id)
        if not frame.startswith(start):
            return None
        if len(self._guesses) == GUESSES_MAX:
            self._guesses.clear()
        guess = self._guesses[start] = Guess(kind, message_id >> 32 & TOPIC_MAX, 0)
        return guess

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
