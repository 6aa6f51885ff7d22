# SPDX-License-Identifier: Apache-2.0
"""Secrets and signatures of Standard Webhooks. Secrets come from files and the environment, and no line of a log has one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from standardwebhooks import Webhook

from validator_webhook.limits import SECRET_BYTES, SECRET_FILE_BYTES_MAX, SECRETS_MAX, TOKEN_CHARACTERS_MIN

PREFIX: Final = "whsec_"


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """The secrets that sign, the newest first: while one is replaced, a receiver may check either."""

    keys: tuple[bytes, ...]

    @property
    def newest(self) -> str:
        """The newest one as text."""
        return PREFIX + base64.b64encode(self.keys[0]).decode()

    def derived(self, uid: str) -> Secrets:
        """Return the secrets of one subscription: whoever has them learns nothing of another's."""
        return Secrets(tuple(hmac.digest(key, f"webhook/{uid}".encode(), hashlib.sha256) for key in self.keys))

    def headers(self, identity: str, at: datetime, body: bytes) -> list[tuple[str, str]]:
        """Return the three headers of Standard Webhooks; ``at`` is the time of this attempt."""
        text = body.decode()
        signatures = " ".join(Webhook(key).sign(identity, at, text) for key in self.keys)
        return [
            ("webhook-id", identity),
            ("webhook-timestamp", str(int(at.timestamp()))),
            ("webhook-signature", signatures),
        ]


def read_text(name: str, file: str | None, variable: str | None) -> str:
    """Return the content of a private file or of an environment variable; ``name`` names the key in errors.

    Raises ``ValueError``: neither or both are given; a variable that is not set; a file that cannot be read, that others may read, or that
    is too long.
    """
    if (file is None) == (variable is None):
        raise ValueError(f"{name}: expected {name}_file or {name}_env, found {'neither' if file is None else 'both'}")
    if variable is not None:
        found = os.environ.get(variable)
        if found is None:
            raise ValueError(f"{name}_env: the environment has no {variable}")
        return found
    assert file is not None
    try:
        with Path(file).open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            data = opened.read(SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{name}_file: {file}: {error.strerror}") from None
    if mode & 0o077:
        raise ValueError(
            f"{name}_file: {file}: expected a file that only its owner may read (mode 0600), found mode {mode:04o}"
        )
    if len(data) > SECRET_FILE_BYTES_MAX:
        raise ValueError(f"{name}_file: {file}: expected at most {SECRET_FILE_BYTES_MAX} bytes")
    return data.decode("utf-8", "replace")


def parse_secrets(name: str, text: str) -> Secrets:
    """Return the secrets of a text, one a line, the newest first. Raises ``ValueError``, which does not show them."""
    lines = text.split()
    if not 1 <= len(lines) <= SECRETS_MAX:
        raise ValueError(f"{name}: expected 1 to {SECRETS_MAX} secrets, one a line, found {len(lines)}")
    keys = []
    least, most = SECRET_BYTES
    for number, line in enumerate(lines, 1):
        try:
            key = base64.b64decode(line.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not line.startswith(PREFIX) or not least <= len(key) <= most:
            raise ValueError(f"{name}: line {number}: expected {PREFIX} and {least} to {most} bytes in base64")
        keys.append(key)
    return Secrets(tuple(keys))


def parse_token(text: str) -> str:
    """Return the listener's token. Raises ``ValueError``, which does not show it."""
    token = text.strip()
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"token: expected at least {TOKEN_CHARACTERS_MIN} printable ASCII characters without spaces")
    return token


def is_same(given: str, expected: str) -> bool:
    """Compare a secret in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def identity(topic: str, partition: int, offset: int, uid: str) -> str:
    """Return the id of a delivery, the same in each attempt and after each restart.

    A dot separates the parts of what is signed, so a topic's dots become colons.
    """
    return f"{topic.replace('.', ':')}-{partition}-{offset}-{uid}"
