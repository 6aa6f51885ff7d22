# SPDX-License-Identifier: Apache-2.0
"""The definition of a lane: plain values that travel to a worker with the job's plan."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from validator.codec.codec import Codec, RecordChecks
from validator.codec.decode import decode_record
from validator.core.execute import Intervals
from validator.core.handlers.dispatch import HandlerDispatcher
from validator.core.handlers.upward import FixedWeightDispatcher, UpwardDispatcher
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.lane import Lane, LaneSettings
from validator.core.rules import LaneRules, RulesEpoch, check_rules
from validator.core.scale import DecodeError, Encoding, Reader, Writer, decoding
from validator.core.types import BlockNumber, Enactment
from validator.errors import UserError
from validator.plugin.protocol_api import ChainSettings, ProtocolDefinition
from validator.plugin.registry import PluginError
from validator.plugin.runtime import (
    Epoch,
    HandlerUse,
    RulesOutdated,
    RulesUse,
    Runtime,
    RuntimePlan,
    codec_of,
    first_difference,
    first_rules_difference,
    make_runtime,
)
from validator.plugin.watchdog import HANDLER_SECONDS_MAX_DEFAULT, Watchdog

_ENACTMENTS = tuple(Enactment)

RULES = Encoding("rules")


class JournalUnreadable(Exception):
    """A record that the journal accepted can no longer be decoded."""


@dataclass(frozen=True, slots=True)
class LaneDefinition:
    """One relay chain: its rules and its initial state.

    ``genesis`` is the canonical encoding of the state before ``first_block`` (`core.rules.pages`). ``runtime_digest`` is 32 bytes over
    everything that decides a verdict besides the inputs.
    """

    name: str
    runtime_digest: bytes
    genesis: Iterable[bytes]
    plan: RuntimePlan
    first_block: BlockNumber = 1
    enactment: Enactment = Enactment.IMMEDIATE
    settings: LaneSettings = field(default_factory=LaneSettings)
    upward_weights: dict[bytes, int] = field(default_factory=dict)
    upward_default_weight: int = 1
    upward_failing: frozenset[bytes] = frozenset()
    epochs: tuple[Epoch, ...] = ()
    """What the driver built from the plan; if empty, ``runtime_digest`` applies to every block."""
    upward_weight_max: int | None = None
    """Weight that a handler may use for one message; None means the weight of a whole round."""
    handler_seconds_max: float = HANDLER_SECONDS_MAX_DEFAULT

    def check(self) -> None:
        """Raise `UserError`, in one line, if this process has other plugins than the driver."""
        try:
            runtime = make_runtime(self.plan)
            if self.epochs:
                runtime.expect(self.epochs)
        except PluginError as error:
            there = ", ".join(dict.fromkeys(name for epoch in self.epochs for name in epoch.plugins()))
            raise UserError(f"lane {self.name}: the driver has {there}, this worker does not: {error.line}") from None
        except RulesOutdated as error:
            raise UserError(
                f"lane {self.name}: the driver has {error}: this worker has another version of the protocol"
            ) from None
        except UserError as error:
            raise UserError(f"lane {self.name}: {error}") from None

    @property
    def has_handlers(self) -> bool:
        """Whether handlers of plugins execute in the lane, at any height."""
        return bool(self.plan.handlers)

    def handlers_at(self, block: BlockNumber) -> list[str]:
        """Return the handlers in force at a block, as ``name@version``, by the names that the driver has found."""
        at = bisect_right(self.epochs, block, key=lambda epoch: epoch.from_block)
        return self.epochs[at - 1].plugins()[1:] if at else []

    @property
    def all_handlers(self) -> list[str]:
        """The handlers in force at any block, as ``name@version``."""
        return list(dict.fromkeys(name for epoch in self.epochs for name in epoch.plugins()[1:]))

    @property
    def _without_handlers(self) -> Runtime:
        """What is needed of the lane where its handlers are not executed, hence not imported. Raises `PluginError`."""
        return make_runtime(replace(self.plan, handlers=None))

    def digest_at(self, block: BlockNumber) -> bytes:
        """Return the runtime digest that the records of a block carry."""
        at = bisect_right(self.epochs, block, key=lambda epoch: epoch.from_block)
        return self.epochs[at - 1].digest if at else self.runtime_digest

    def plugins_at(self, block: BlockNumber) -> list[str]:
        """Return the plugins in force at a block, as ``name@version``, the protocol's first. Raises `PluginError`."""
        epochs = make_runtime(self.plan).epochs
        return epochs[bisect_right(epochs, block, key=lambda epoch: epoch.from_block) - 1].plugins()

    def refuse_to_change_the_past(self, before: LaneDefinition, executed_block: BlockNumber) -> None:
        """Raise `UserError` if the new definition has other rules or handlers for blocks that are already executed."""
        # a configured first block after the executed ones does not apply to a lane that already has a state
        rules_before = before.plan.rules or before.rules  # its handlers need not be installed any more
        changed = first_rules_difference(rules_before, self.rules, min(self.first_block, executed_block))
        if changed is not None and changed <= executed_block:
            raise UserError(
                f"lane {self.name}: its rules differ from block {changed} on, but block {executed_block} is already executed: let the "
                f"change begin after that block, or remove the job's checkpoint and use another topics prefix"
            )
        changed = first_difference(before.plan.handlers or (), self.plan.handlers or ())
        if changed is not None and changed <= executed_block:
            raise UserError(
                f"lane {self.name}: its handlers differ from block {changed} on, but block {executed_block} is already executed: let "
                f"the change begin after that block (from_block; docs/deploy-a-handler.md, Upgrading a handler), or remove the job's "
                f"checkpoint and use another topics prefix"
            )

    def genesis_path(self, folder: Path) -> Path:
        """Return where the job keeps the lane's genesis, below ``folder``. Raises `PluginError`."""
        return genesis_path(folder, self.name, self.runtime_digest, self.protocol.encoding_version)

    def create(self) -> Lane:
        """Return the lane before its first block."""
        return Lane(self.name, self.restore_rules(list(self.genesis)), self.first_block - 1, self.settings)

    def restore(self, snapshot: list[bytes]) -> Lane:
        """Return the lane that a `Lane.snapshot` describes. Raises `core.scale.DecodeError`, `JournalUnreadable`."""
        return Lane.restore(self.name, snapshot, self.restore_rules, partial(decode_again, self.codec), self.settings)

    @classmethod
    def stored(cls, name: str, runtime_digest: bytes, rules: bytes, settings: LaneSettings) -> LaneDefinition:
        """Return a lane described by `encode_rules` alone, for `under`; its initial state is unknown.

        Raises `core.scale.DecodeError`.
        """
        return cls(name, runtime_digest, (), RuntimePlan(_protocol_of(RULES.read(rules))), settings=settings)

    @property
    def protocol(self) -> ProtocolDefinition:
        """The lane's protocol. Raises `PluginError`."""
        return self._without_handlers.protocol

    @property
    def records(self) -> RecordChecks:
        """What the lane's input records must satisfy."""
        return self._without_handlers.records

    @property
    def rules(self) -> tuple[RulesUse, ...]:
        """The versions of the protocol's rules, each with the block at which it begins."""
        rules = self._without_handlers.plan.rules
        assert rules is not None
        return rules

    @property
    def codec(self) -> Codec:
        """How the lane's input records are read."""
        return self._without_handlers.codec

    def encode_rules(self) -> bytes:
        """Return, as canonical bytes, what besides its inputs decides how the lane continues from a state.

        The limits on blocks ahead and on waiting bytes are not included: they stop a lane and change nothing.
        """
        out = RULES.begin()
        out.bytes(self.plan.protocol.encode())
        out.compact(len(self.rules))
        for from_block, version in self.rules:
            out.u32(from_block)
            out.u32(version)
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
        out.option(self.upward_weight_max, out.u64)
        out.option(self.plan.handlers, lambda uses: _write_uses(out, uses))
        return bytes(out.buffer)

    def under(self, rules: bytes) -> LaneDefinition:
        """Return the same lane under the rules of an earlier `encode_rules`.

        Raises `RulesOutdated` if this program now has other rules, `core.scale.DecodeError`, `PluginError` if a plugin of that time is no
        longer installed.
        """
        with decoding("the head's list of rules"):
            return self._under(RULES.read(rules))

    def _under(self, reader: Reader) -> LaneDefinition:
        plan = RuntimePlan(_protocol_of(reader), lock=self.plan.lock)
        uses = tuple(reader.items(lambda: RulesUse(reader.u32(), reader.u32())))
        try:
            check_rules(tuple(RulesEpoch(*use) for use in uses))
        except ValueError as error:
            raise DecodeError(str(error)) from None
        plan = replace(plan, rules=uses)
        make_runtime(plan)
        definition = replace(
            self,
            enactment=reader.choice(_ENACTMENTS),
            settings=replace(
                self.settings,
                duplicate_window_blocks=reader.u32(),
                intervals=Intervals(headroom=reader.u32(), root=reader.u32()),
            ),
            upward_default_weight=reader.u64(),
            upward_weights=_by_payload(reader.items(lambda: (reader.bytes(), reader.u64()))),
            upward_failing=frozenset(_by_payload(reader.items(lambda: (reader.bytes(), 0)))),
            upward_weight_max=reader.option(reader.u64),
            plan=replace(plan, handlers=reader.option(lambda: tuple(reader.items(lambda: _read_use(reader))))),
        )
        reader.end()
        return definition

    def restore_rules(self, pages: list[bytes]) -> LaneRules[Any]:
        """Return the rules with the state that pages hold (`core.rules.pages`). Raises `core.scale.DecodeError`."""
        runtime = make_runtime(self.plan)
        dispatcher: UpwardDispatcher
        if runtime.handlers is None:
            dispatcher = FixedWeightDispatcher(self.upward_weights, self.upward_default_weight, self.upward_failing)
        else:
            dispatcher = HandlerDispatcher(
                runtime.handlers,
                default_weight=self.upward_default_weight,
                weight_max=self.upward_weight_max,
                guard=Watchdog(self.handler_seconds_max),
            )
        settings = ChainSettings(enactment=self.enactment, upward_messages=dispatcher, rules=runtime.rules)
        return runtime.protocol.rule_set.from_pages(pages, settings)


def _protocol_of(rules: Reader) -> str:
    return rules.bytes().decode("utf-8", "replace")


def _by_payload(pairs: list[tuple[bytes, int]]) -> dict[bytes, int]:
    """Return pairs by payload if the payloads ascend, as they are written. Raises `DecodeError`."""
    if any(first >= second for (first, _), (second, _) in pairwise(pairs)):
        raise DecodeError("payloads are not in ascending order")
    return dict(pairs)


def _write_uses(out: Writer, uses: tuple[HandlerUse, ...]) -> None:
    out.compact(len(uses))
    for use in uses:
        out.bytes(use.plugin.encode())
        out.bytes((use.version or "").encode())
        out.u32(use.from_block)
        out.bytes(use.config.encode())
        out.u8(use.removed)


def _read_use(reader: Reader) -> HandlerUse:
    plugin, version, from_block, config = reader.bytes(), reader.bytes(), reader.u32(), reader.bytes()
    removed = reader.boolean()
    try:
        use = HandlerUse(plugin.decode(), version.decode() or None, from_block, config.decode(), removed)
        values = json.loads(use.config)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the use of a handler plugin is damaged: {error}") from None
    if not isinstance(values, dict):
        raise DecodeError(f"handler plugin {use.plugin!r}: expected an object as its configuration, found {use.config}")
    return use


def journal_under_others(lane: str, error: PluginError | RulesOutdated) -> str:
    """Return, in one line, what a user can do about a lane whose journal was written under rules or plugins that are not here any more."""
    again = f"`validator lanes resume --lane {lane} --rebuild` executes its inputs again"
    if isinstance(error, RulesOutdated):
        return f"lane {lane}: its journal was written under {error}: {again}"
    return (
        f"lane {lane}: its journal was written under plugins that are no longer installed: {error.line}: install them next to the new ones "
        f"for one start; otherwise {again}"
    )


def named_handlers(definition: LaneDefinition, block: BlockNumber) -> str:
    """Return, as words to append, which handlers execute at a block: one that does not give the same result twice is the usual cause."""
    handlers = definition.handlers_at(block)
    return (
        f"; its handlers are {', '.join(handlers)}: each must give the same result for the same state and message"
        if handlers
        else ""
    )


def job_codec(definitions: Iterable[LaneDefinition]) -> Codec:
    """Return the codec for the input records of all of a job's lanes, before it is known which lane a record belongs to."""
    return codec_of(replace(definition.plan, handlers=None) for definition in definitions)


def decode_again(codec: Codec, kind: RecordKind, raw: bytes, source: Source) -> Input:
    """Decode a record that has been decoded before. Raises `JournalUnreadable` if that is no longer possible."""
    decoded = decode_record(codec, kind, raw, source)
    if isinstance(decoded, DeadLetter):
        where = f"{source.topic}[{source.partition}]@{source.offset}"
        raise JournalUnreadable(f"the record at {where} was decoded before and no longer can be: {decoded.detail}")
    return decoded[1]


# --- the genesis, kept as pages next to the file that people write -----------------------------------------------------------------------
#
# A large chain's STATE.json takes a minute to read and check, at every start of the job. So the job keeps what it read, encoded as pages.
# The file name depends on everything that the pages were made from: another file, configuration or encoding has another name.

Genesis: TypeAlias = tuple[BlockNumber, tuple[bytes, ...]]
"""First block, and the pages of the state before it."""

GENESIS_VERSION = 1
_KEY_BYTES = 8
_CHECKSUM_BYTES = 16
_SUFFIX = ".genesis"


def genesis_path(folder: Path, lane: str, runtime_digest: bytes, encoding_version: int) -> Path:
    """Return where a lane's genesis is kept; the name depends on everything that it is made from.

    ``encoding_version`` is the version of the pages of the lane's protocol (`plugin.api.ProtocolDefinition.encoding_version`).
    """
    versions = GENESIS_VERSION.to_bytes(1, "little") + encoding_version.to_bytes(4, "little")
    key = blake2b(runtime_digest + versions, digest_size=_KEY_BYTES)
    return folder / f"{lane}-{key.hexdigest()}{_SUFFIX}"


def kept_genesis(path: Path, make: Callable[[], Genesis]) -> Genesis:
    """Return the first block and the pages stored at ``path``; make and store them if they are missing or unreadable."""
    try:
        return read_genesis(path)
    except (FileNotFoundError, DecodeError):
        genesis = make()
    keep_genesis(path, genesis)
    return genesis


def keep_genesis(path: Path, genesis: Genesis) -> None:
    """Write a genesis, replacing the lane's earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lane = path.name.removesuffix(_SUFFIX).rpartition("-")[0]
    for other in path.parent.glob(f"{lane}-{'?' * 2 * _KEY_BYTES}{_SUFFIX}"):
        other.unlink()
    written = path.with_name(f"{path.name}.new")
    written.write_bytes(_encode(*genesis))
    written.replace(path)


def read_genesis(path: Path) -> Genesis:
    """Return the genesis in a file of `keep_genesis`. Raises `OSError`, `core.scale.DecodeError`."""
    data = path.read_bytes()
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if blake2b(body, digest_size=_CHECKSUM_BYTES).digest() != checksum:
        raise DecodeError(f"{path} is damaged")
    reader = Reader(body)
    first_block, pages = reader.u32(), tuple(reader.items(reader.bytes))
    reader.end()
    return first_block, pages


def _encode(first_block: BlockNumber, pages: Sequence[bytes]) -> bytes:
    out = Writer()
    out.u32(first_block)
    out.compact(len(pages))
    for page in pages:
        out.bytes(page)
    return bytes(out.buffer) + blake2b(out.buffer, digest_size=_CHECKSUM_BYTES).digest()
