# SPDX-License-Identifier: Apache-2.0
"""A body as JSON: a list of payloads in hex, as people and files have it."""

from __future__ import annotations

import json
from typing import Final

from validator_xcmp_bodies.parts import BodyError

SHOWN_CHARACTERS: Final = 60
"""Characters of a wrong text that an error shows."""


def parse_body(text: str) -> list[bytes]:
    """Return the payloads that a JSON text lists. Raises `BodyError` that says what was expected and found."""
    try:
        return body_of(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BodyError(
            f"expected a list of payloads in hex, found {text.strip()[:SHOWN_CHARACTERS]} ({error})"
        ) from None


def body_of(value: object) -> list[bytes]:
    """Return the payloads of a parsed JSON text, each in lower-case hex with or without ``0x``. Raises `BodyError`."""
    if not isinstance(value, list):
        raise BodyError("not a list")
    return [_payload(payload) for payload in value]


def _payload(text: object) -> bytes:
    if not isinstance(text, str):
        raise BodyError("not a text")
    digits = text.removeprefix("0x")
    try:
        payload = bytes.fromhex(digits)
    except ValueError as error:
        raise BodyError(str(error)) from None
    if payload.hex() != digits:
        raise BodyError("capitals or white space in hex")
    return payload
