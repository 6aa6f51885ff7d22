# SPDX-License-Identifier: Apache-2.0
"""Dispatchers of upward messages: what a rule set's dispatch round delegates to, and the dispatcher that only weighs messages."""

from __future__ import annotations

from typing import Protocol

from validator.core.handlers.context import Host
from validator.core.outcomes import DispatchOutcome, Processed
from validator.core.types import ParaId, Weight


class UpwardDispatcher(Protocol):
    """Processes upward messages for a rule set: the relay chain's runtime, as far as the rules see it."""

    def process(self, host: Host, para: ParaId, payload: bytes, limit: Weight | None = None) -> Processed:
        """Process the message, and return the outcome; an exception is not an outcome but stops the lane.

        The message may use ``limit`` of weight; None means what the chain allows to one message.
        """

    def weigh(self, host: Host, payload: bytes) -> Weight:
        """Return the weight that a message needs before it is processed."""


class FixedWeightDispatcher:
    """Weighs messages by a table and does nothing with them; those in ``failing`` fail.

    See ``ump_weights``, ``ump_default_weight`` and ``ump_failing_messages`` in `docs/trace-format.md`, "Scenario".
    """

    def __init__(
        self,
        weights: dict[bytes, Weight] | None = None,
        default_weight: Weight = 1,
        failing: frozenset[bytes] = frozenset(),
    ) -> None:
        self._weights = weights or {}
        self._default_weight = default_weight
        self._failing = failing

    def process(
        self,
        host: Host,  # noqa: ARG002
        para: ParaId,  # noqa: ARG002
        payload: bytes,
        limit: Weight | None = None,  # noqa: ARG002
    ) -> Processed:
        """Charge the table's weight for this payload, or the default."""
        weight = self._weights.get(payload, self._default_weight)
        if payload in self._failing:
            return Processed(weight, DispatchOutcome.FAILED, "RuntimeError: told to fail")
        return Processed(weight, DispatchOutcome.OK)

    def weigh(self, host: Host, payload: bytes) -> Weight:  # noqa: ARG002
        """Return the table's weight for this payload, or the default."""
        return self._weights.get(payload, self._default_weight)
