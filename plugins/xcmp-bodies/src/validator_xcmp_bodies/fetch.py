# SPDX-License-Identifier: Apache-2.0
"""Reads held bodies back from `xcmp.bodies`, and verifies them again: who reads them trusts nothing but the relay chain's root."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, Self

from validator.cli.command_api import POLL_S, TopicReader, UserError
from validator.plugin.job_api import RecordUnreadable
from validator_xcmp_bodies import records
from validator_xcmp_bodies.outcomes import Held, Place
from validator_xcmp_bodies.parts import BodyError, Part, measure, rejoin

FETCH_S_MAX: Final = 60.0
"""Seconds that reading one part may take."""


class BodyFetcher:
    """A reader of `xcmp.bodies` that goes to places. Every method raises `UserError`."""

    def __init__(self, kafka: Mapping[str, object], prefix: str) -> None:
        self._reader = TopicReader(kafka, prefix, [records.BODIES], tail=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def payloads(self, lane: str, held: Held) -> list[bytes]:
        """Return the payloads of a held body. Errors: a part is gone, the parts are not the body that is listed."""
        parts = [self._part(place) for place in held.places]
        name = f"{lane}: the body of {held.sent_at}/{held.sender} for {held.recipient}"
        try:
            payloads = rejoin(parts)
        except BodyError as error:
            raise UserError(f"{name} cannot be joined: {error}") from error
        found = measure(payloads)
        if (found.root, found.size) != (held.root, held.size):
            raise UserError(f"{name}: expected root {held.root.hex()}, found {found.root.hex()}")
        return payloads

    def _part(self, place: Place) -> Part:
        value = self._value(place)
        try:
            return records.decode_body(value)[2]
        except (RecordUnreadable, BodyError) as error:
            raise UserError(f"{records.BODIES} {place.partition}/{place.offset}: {error}") from error

    def _value(self, place: Place) -> bytes:
        self._reader.restart(records.BODIES, place.partition, place.offset)
        deadline = time.monotonic() + FETCH_S_MAX
        while time.monotonic() < deadline:
            found: list[Any] = self._reader.poll(POLL_S)
            if found:
                if found[0].offset == place.offset:
                    return bytes(found[0].value)
                break
            if self._reader.at_end:
                break
        raise UserError(
            f"{records.BODIES} {place.partition}/{place.offset}: the record is gone; bodies are kept for [jobs.xcmp-bodies] retention_hours"
        )
