# SPDX-License-Identifier: Apache-2.0
"""The metrics of followed chains: how far a lane is, what its nodes do, and what the judge says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from validator.plugin.api import Measure, PluginMetric
from validator_relay_chain.oracle.compare import Reason

FOLLOWED: Final = (
    PluginMetric("followed_block", "The last block of the chain whose records Kafka has.", ("lane",)),
    PluginMetric("finalised_block", "The last finalised block that the node in use has named.", ("lane",)),
    PluginMetric("blocks_behind", "Finalised blocks whose records Kafka does not have yet.", ("lane",)),
    PluginMetric("head_timestamp_seconds", "When a later finalised block was named last, in Unix time.", ("lane",)),
    PluginMetric("node_requests_total", "Requests that nodes have answered.", ("lane",)),
    PluginMetric(
        "node_retries_total", "Requests to nodes that failed and were repeated, by reason.", ("lane", "reason")
    ),
)
"""What the follower measures."""

JUDGED: Final = (
    PluginMetric("compared_block", "The last block in which the lane was compared with its chain.", ("lane",)),
    PluginMetric(
        "compared_total", "What was compared since the lane began: blocks, candidates and others.", ("lane", "what")
    ),
    PluginMetric("disagreements_total", "Points in which lane and chain differ.", ("lane", "kind", "reason")),
)
"""What the judge measures."""

KINDS: Final = (
    "CandidateRefused", "CandidatesMissing", "InclusionRefused", "InclusionMissing", "TimeoutRefused", "TimeoutMissing", "ChannelHead",
    "ChannelRoom", "DownwardHead", "DownwardCount", "Watermark", "ChannelsOpened", "ChannelsClosed",
)  # fmt: skip
"""What may differ for no known reason. These series begin with 0: an alert sees growth only of a series that is there."""

WITH_REASON: Final = {
    "ChannelWithoutEvent": Reason.CHANNELS_WITHOUT_EVENT,
    "DownwardReset": Reason.DOWNWARD_RESET,
    "NotDecoded": Reason.NOT_DECODED,
}
"""What differs for one reason alone; these series begin with 0, too."""


class Figures:
    """The values of a transport's metrics. Any thread may set them."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], float] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """Set a value."""
        self._values[name, *labels] = value

    def measures(self) -> list[Measure]:
        """Return all values (`validator.plugin.api.Measures`)."""
        return [Measure(name, value, tuple(labels)) for (name, *labels), value in self._values.copy().items()]


class ChainFigures:
    """What a follower knows of one lane."""

    def __init__(self, figures: Figures, lane: str, number: int, wall_clock: Callable[[], float] = time.time) -> None:
        self._figures, self._lane, self._clock = figures, lane, wall_clock
        self._number = self._head = number
        self._headed()
        self._positions()

    def heard(self, head: int) -> None:
        """Note a finalised block."""
        if head > self._head:
            self._head = head
            self._headed()

    def followed(self, number: int, requests: int) -> None:
        """Note the last block that is on Kafka, and how many requests were answered."""
        self._number = number
        self.heard(number)
        self._positions()
        self._figures.put("node_requests_total", requests, self._lane)

    def failed(self, failures: Mapping[str, int]) -> None:
        """Note the failed requests, by reason."""
        for reason, count in sorted(failures.items()):
            self._figures.put("node_retries_total", count, self._lane, reason)

    def _headed(self) -> None:
        self._figures.put("finalised_block", self._head, self._lane)
        self._figures.put("head_timestamp_seconds", self._clock(), self._lane)

    def _positions(self) -> None:
        self._figures.put("followed_block", self._number, self._lane)
        self._figures.put("blocks_behind", max(0, self._head - self._number), self._lane)


class JudgeFigures:
    """What the judge knows of one lane."""

    def __init__(self, figures: Figures, lane: str) -> None:
        self._figures, self._lane = figures, lane
        self._found: Counter[tuple[str, str]] = Counter({(kind, Reason.OURS.value): 0 for kind in KINDS})
        self._found.update({(kind, reason.value): 0 for kind, reason in WITH_REASON.items()})
        self.judged(None, ())

    def judged(self, agreement: Mapping[str, Any] | None, found: Iterable[tuple[str, str]]) -> None:
        """Note what was compared so far, and new disagreements by kind and reason."""
        self._found.update(found)
        for (kind, reason), count in sorted(self._found.items()):
            self._figures.put("disagreements_total", count, self._lane, kind, reason)
        if agreement is not None:
            self._figures.put("compared_block", agreement["block"], self._lane)
            for what in ("blocks", "candidates", "inclusions", "heads", "counters", "channels", "skipped"):
                self._figures.put("compared_total", agreement[what], self._lane, what)
