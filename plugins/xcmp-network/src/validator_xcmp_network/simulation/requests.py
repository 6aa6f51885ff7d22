# SPDX-License-Identifier: Apache-2.0
"""Reports of bodies on a simulated chain: true ones, and for each error some that break its rule, if the state allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from validator_xcmp.simulation.requests import NOBODY_FIRST

from validator.simulate import Draws, Json, LeastMet
from validator_xcmp_network.simulation.model import NaiveNetwork

REPORTED_PERCENT: Final = 55
"""Percentage of the missing bodies that are reported in a block."""
ROOT_BYTES: Final = 32


class ReportTraffic:
    """Makes reports. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveNetwork, draws: Draws) -> None:
        self.model = model
        self.draws = draws
        self.ways: dict[str, Callable[[], Json | None]] = {
            "Body/NotExpected": self._not_expected,
            "Body/SizeMismatch": self._size_mismatch,
            "Body/RootMismatch": self._root_mismatch,
            "Body/Duplicate": self._duplicate,
        }
        self.errors = LeastMet(draws, self.ways)

    def due(self) -> list[Json]:
        """Return the messages whose bodies are reported in this block."""
        missing = [message for message in self.model.messages if not message["held"]]
        return [message for message in missing if self.draws.percent(REPORTED_PERCENT)]

    def true(self, message: Json) -> tuple[Json, Json]:
        """Return the report of a message's body, and the model's verdict."""
        return self._judged(self._report(message))

    def broken(self) -> tuple[Json, Json] | None:
        """Return a report that breaks a rule, and the model's verdict."""
        made = (self.ways[kind]() for kind in self.errors.order())
        report = next((each for each in made if each is not None), None)
        return None if report is None else self._judged(report)

    def _judged(self, report: Json) -> tuple[Json, Json]:
        result = self.model.request(report)
        self.errors.note(result)
        return report, result

    @staticmethod
    def _report(message: Json) -> Json:
        return {
            "kind": "report_body",
            "recipient": message["recipient"],
            "sender": message["sender"],
            "sent_at": message["block"],
            "root": message["root"],
            "size": message["size"],
        }

    def _one(self, *, held: bool) -> Json | None:
        return self.draws.one_of([message for message in self.model.messages if message["held"] == held])

    def _not_expected(self) -> Json | None:
        message = self.draws.one_of(self.model.messages)
        if message is None:
            return None
        return self._report(message) | {"sender": NOBODY_FIRST + self.draws.randrange(10)}

    def _size_mismatch(self) -> Json | None:
        message = self.draws.one_of(self.model.messages)
        return None if message is None else self._report(message) | {"size": message["size"] + 1}

    def _root_mismatch(self) -> Json | None:
        message = self.draws.one_of(self.model.messages)
        return None if message is None else self._report(message) | {"root": self.draws.hex(ROOT_BYTES)}

    def _duplicate(self) -> Json | None:
        message = self._one(held=True)
        return None if message is None else self._report(message)
