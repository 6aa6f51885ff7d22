# SPDX-License-Identifier: Apache-2.0
"""Counts what the examples of the Router's property test meet, so that the test cannot pass without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from validator_simulators.router.model import Channel, NaiveRouter

from tests.property.shapes import Json

AT_LEAST: Final = {
    "horizontal messages accepted": 150,
    "partial prunes": 15,
    "full prunes": 40,
    "channels removed with contents": 15,
    "messages refused by a full channel": 25,
}
"""How often all examples together must meet an event."""
FULL: Final = ("OutboundHrmp/CapacityExceeded", "OutboundHrmp/TotalSizeExceeded")


class Met(Counter[str]):
    """The number of events, by name."""

    def before(self, naive: NaiveRouter) -> Watch:
        """Return the watch over one change of the model."""
        return Watch(self, naive, _contents(naive))


class Watch(NamedTuple):
    """The model before a change."""

    met: Met
    naive: NaiveRouter
    contents: dict[Channel, list[Json]]

    def after(self, results: Sequence[Json], candidate: Json | None = None) -> None:
        """Count what the change has done. ``candidate`` is the one that it checked, if any."""
        now = _contents(self.naive)
        for channel, messages in self.contents.items():
            left = [message for message in messages if any(message is other for other in now.get(channel, ()))]
            if channel not in now:
                self.met["channels removed with contents"] += bool(messages)
            elif len(left) < len(messages):
                self.met["partial prunes" if left else "full prunes"] += 1
        for result in results:
            if candidate is not None and result["ok"]:
                self.met["horizontal messages accepted"] += len(candidate["horizontal_messages"])
            self.met["messages refused by a full channel"] += not result["ok"] and result["error"]["kind"] in FULL


def missed(met: Met) -> dict[str, int]:
    """Return the events that were met less often than they must be, with their numbers."""
    return {name: met[name] for name, least in AT_LEAST.items() if met[name] < least}


def _contents(naive: NaiveRouter) -> dict[Channel, list[Json]]:
    return {channel: list(fields["messages"]) for channel, fields in naive.channels.items()}
