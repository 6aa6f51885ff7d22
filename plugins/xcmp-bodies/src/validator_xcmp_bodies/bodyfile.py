# SPDX-License-Identifier: Apache-2.0
"""A body as JSON: a list of payloads in hex, as people and files have it."""

from __future__ import annotations

import json
from typing import Final

from validator_xcmp_bodies.parts import BodyError

SHOWN_CHARACTERS: Final = 60
"""Characters of a wrong text that an error shows."""


def parse_body(text: str) -> list[bytes]:
    """Return the payloads. Raises `BodyError` that says what was expected and found."""
    try:
        found = json.loads(text)
        if not isinstance(found, list):
            raise ValueError("not a list")
        return [bytes.fromhex(payload.removeprefix("0x")) for payload in found]
    except (ValueError, AttributeError, RecursionError) as error:
        raise BodyError(
            f"expected a list of payloads in hex, found {text.strip()[:SHOWN_CHARACTERS]} ({error})"
        ) from None
