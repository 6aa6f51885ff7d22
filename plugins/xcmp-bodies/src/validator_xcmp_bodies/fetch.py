# SPDX-License-Identifier: Apache-2.0
"""Reads held bodies back from `xcmp.bodies` for commands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, Self

from validator.cli.command_api import POLL_S, TopicReader, UserError
from validator_xcmp_bodies import records
from validator_xcmp_bodies.outcomes import Held, RecordOffset
from validator_xcmp_bodies.parts import BodyError
from validator_xcmp_bodies.reading import gone, read_body

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
        try:
            return read_body(lane, held, self._value)
        except BodyError as error:
            raise UserError(str(error)) from error

    def _value(self, place: RecordOffset) -> bytes:
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
        raise UserError(gone(place))
