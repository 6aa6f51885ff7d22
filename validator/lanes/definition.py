# SPDX-License-Identifier: Apache-2.0
"""What a lane is made from: plain values that travel to a worker with the job's plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from validator.codec.decode import decode_record
from validator.core.execute import Intervals
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.lane import Lane, LaneSettings
from validator.core.router.dispatch import FixedWeightSink
from validator.core.router.router import RULES_VERSION, Router
from validator.core.rules import RuleSet
from validator.core.scale import Reader, Writer
from validator.core.types import BlockNumber, Enactment

_ENACTMENTS = tuple(Enactment)


class RulesOutdated(Exception):
    """A journal was written under rules that this program no longer has."""


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
    genesis: Iterable[bytes]
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

    def encode_rules(self) -> bytes:
        """Return, as canonical bytes, what beside its inputs decides how the lane goes on from a state.

        The blocks ahead and the bytes that may wait are not of it: they stop a lane and change nothing.
        """
        out = Writer()
        out.u32(RULES_VERSION)
        out.u8(_ENACTMENTS.index(self.enactment))
        out.u32(self.settings.duplicate_window_blocks)
        out.u32(self.settings.intervals.headroom)
        out.u32(self.settings.intervals.root)
        out.u64(self.upward_default_weight)
        out.compact(len(self.upward_weights))
        for payload, weight in sorted(self.upward_weights.items()):
            out.bytes(payload)
            out.u64(weight)
        out.compact(len(self.upward_failing))
        for payload in sorted(self.upward_failing):
            out.bytes(payload)
        return bytes(out.buffer)

    def under(self, rules: bytes) -> LaneDefinition:
        """Return the same lane under the rules of earlier `encode_rules`.

        Raises `RulesOutdated` where this program has other rules by now, `core.scale.DecodeError`.
        """
        reader = Reader(rules)
        version = reader.u32()
        if version != RULES_VERSION:
            raise RulesOutdated(f"rules of version {version}, this program has version {RULES_VERSION}")
        definition = replace(
            self,
            enactment=reader.choice(_ENACTMENTS),
            settings=replace(
                self.settings,
                duplicate_window_blocks=reader.u32(),
                intervals=Intervals(headroom=reader.u32(), root=reader.u32()),
            ),
            upward_default_weight=reader.u64(),
            upward_weights=dict(reader.items(lambda: (reader.bytes(), reader.u64()))),
            upward_failing=frozenset(reader.items(reader.bytes)),
        )
        reader.end()
        return definition

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
