# SPDX-License-Identifier: Apache-2.0
"""What the judge says of lanes by now, whichever process it runs in: the newest record of each lane on `relay-chain.agreement`."""

from __future__ import annotations

import threading
from typing import Any

from validator.plugin.api import OutputReader, TransportContext
from validator_relay_chain.oracle import records


class News:
    """Reads the judge's status, never waiting for it. Any thread may ask."""

    def __init__(self, context: TransportContext) -> None:
        self._reader: OutputReader = context.reader([records.AGREEMENT])
        self._lock = threading.Lock()
        self._newest: dict[str, dict[str, Any]] = {}

    def of(self, lane: str) -> str:
        """Return what the judge says of a lane, in a few words. Raises `UserError` as the context does."""
        with self._lock:
            while (record := self._reader.receive(0)) is not None:
                try:
                    found = records.decode(records.AGREEMENT, record.value)
                except records.RecordUnreadable:
                    continue  # of a later version
                self._newest[found["lane"]] = found
            return records.describe_briefly(self._newest.get(lane))
