# SPDX-License-Identifier: Apache-2.0
"""Who takes upward messages: what a rule set's dispatch round delegates each one to, and the one that only weighs them."""

from __future__ import annotations

from typing import Protocol

from validator.core.handlers.context import Host
from validator.core.outcomes import DispatchOutcome, Processed
from validator.core.types import ParaId, Weight


class UpwardDispatcher(Protocol):
    """What a rule set delegates upward messages to: the relay chain's runtime, as far as the rules see it."""

    def process(self, host: Host, para: ParaId, payload: bytes) -> Processed:
        """Process the message, and return what became of it; an exception is not an outcome but stops the lane."""


class FixedWeightDispatcher:
    """Weighs messages by a table and does nothing with them; those in ``failing`` fail.

    Source: traces FORMAT, ``ump_weights``, ``ump_default_weight``, ``ump_failing_messages``.
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

    def process(self, host: Host, para: ParaId, payload: bytes) -> Processed:  # noqa: ARG002
        """Charge the table's weight for this payload, or the default."""
        weight = self._weights.get(payload, self._default_weight)
        if payload in self._failing:
            return Processed(weight, DispatchOutcome.FAILED, "RuntimeError: told to fail")
        return Processed(weight, DispatchOutcome.OK)
