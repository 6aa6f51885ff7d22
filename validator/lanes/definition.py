# SPDX-License-Identifier: Apache-2.0
"""What a lane is made from: plain values that travel to a worker with the job's plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from validator.codec.decode import decode_record
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.lane import Lane, LaneSettings
from validator.core.router.dispatch import FixedWeightSink
from validator.core.router.router import Router
from validator.core.rules import RuleSet
from validator.core.types import BlockNumber, Enactment


class JournalUnreadable(Exception):
    """A record that was accepted into the journal can no longer be decoded."""


@dataclass(frozen=True, slots=True)
class LaneDefinition:
    """One relay chain: its rules and the state that it starts from.

    ``genesis`` is the canonical encoding of the state before ``first_block`` (`core.rules.RuleSet.pages`). ``runtime_digest`` is 32 bytes
    over everything that decides a verdict beside the inputs.
    """

    name: str
    runtime_digest: bytes
    genesis: tuple[bytes, ...]
    first_block: BlockNumber = 1
    enactment: Enactment = Enactment.IMMEDIATE
    settings: LaneSettings = field(default_factory=LaneSettings)
    upward_weights: dict[bytes, int] = field(default_factory=dict)
    upward_default_weight: int = 1
    upward_failing: frozenset[bytes] = frozenset()

    def create(self) -> Lane:
        """Return the lane as it stands before its first block."""
        return Lane(self.name, self._rules(list(self.genesis)), self.first_block - 1, self.settings)

    def restore(self, snapshot: list[bytes]) -> Lane:
        """Return the lane that a `Lane.snapshot` was taken of; raises `core.scale.DecodeError`, `JournalUnreadable`."""
        return Lane.restore(self.name, snapshot, self._rules, decode_again, self.settings)

    def _rules(self, pages: list[bytes]) -> RuleSet:
        sink = FixedWeightSink(self.upward_weights, self.upward_default_weight, self.upward_failing)
        return Router.from_pages(pages, sink, self.enactment)


def decode_again(kind: RecordKind, raw: bytes, source: Source) -> Input:
    """Decode a record that has been decoded before; raises `JournalUnreadable` where that is no longer possible."""
    decoded = decode_record(kind, raw, source)
    if isinstance(decoded, DeadLetter):
        where = f"{source.topic}[{source.partition}]@{source.offset}"
        raise JournalUnreadable(f"the record at {where} was decoded before and is not any more: {decoded.detail}")
    return decoded[1]
