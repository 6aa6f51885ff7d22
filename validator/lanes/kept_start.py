# SPDX-License-Identifier: Apache-2.0
"""What each lane began with and runs under, kept in the job's folder, and the comparison with what the configuration says now.

A lane that has a state does not look at its beginning again, and a rebuild knows only the configuration of today. So a change there would
be ignored by the one, and silently give other results in the other. `validator.config.changes` says which keys may change, and when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from validator.config import Config, configuration_meaning
from validator.config.changes import CHAIN, EFFECTS, LIMITS, Effect
from validator.core.types import BlockNumber
from validator.errors import UserError, written_by_newer
from validator.lanes.accepted import GENESIS, OPTION, Accepted
from validator.lanes.configured import started_chain
from validator.lanes.definition import LaneDefinition
from validator.plugin.runtime import Epoch, digest_of_all

START_VERSION = 1
"""Also the version of what the job's folder holds: a new encoding in the store (head, journal, a parked lane) has a new one here. So an
earlier program refuses to start, instead of parking every lane with its first batch."""
_VERSION = "format"
"""The key of the version. It was ``version`` before the first release, when stores had other encodings by the same numbers."""
_SUFFIX = ".start"

_LISTED = {"genesis_paras": ("kind", "balance")}
_PAYLOADS = ("ump_weights",)


class AcceptedChange(NamedTuple):
    """A key that changed on purpose while the lane had a state. Blocks before ``from_block`` were executed under the earlier value."""

    from_block: BlockNumber
    key: str
    before: str
    now: str


class StartedEpoch(NamedTuple):
    """The plugins from a block on, as ``name@version``, and the runtime digest in hex that stands for them and the configuration."""

    from_block: BlockNumber
    digest: str
    plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaneStart:
    """What a lane began with. ``meaning`` is what its configuration means (`config.configuration_meaning`)."""

    first_block: BlockNumber
    genesis: str
    """BLAKE2b-256, in hex, of the pages of the state before the first block."""
    encoding_version: int
    """The version of these pages; digests of different versions cannot be compared."""
    meaning: dict[str, Any]
    rules: str
    """`LaneDefinition.encode_rules` in hex."""
    removed: bool = False
    """Whether the lane was no longer configured when its job last started."""
    epochs: tuple[StartedEpoch, ...] = ()
    """What the job runs; another program or other libraries have other digests, so they are not compared here."""
    changes: tuple[AcceptedChange, ...] = ()
    """The accepted changes since the lane began, in the order of their blocks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose value is not the one that a lane began with."""

    key: str
    effect: Effect
    before: str
    now: str


def start_of(config: Config, definition: LaneDefinition) -> LaneStart:
    """Return what a configured lane begins with. Raises `UserError` if its state file cannot be read."""
    digest = blake2b(digest_size=32)
    for page in definition.genesis:
        digest.update(len(page).to_bytes(8, "little") + page)
    meaning = configuration_meaning(started_chain(config, definition.name))
    plain = json.loads(json.dumps(meaning, default=str))  # as a file holds it
    epochs = started_epochs(definition.epochs)
    return LaneStart(
        definition.first_block,
        digest.hexdigest(),
        definition.protocol.encoding_version,
        plain,
        definition.encode_rules().hex(),
        epochs=epochs,
    )


def with_changes(
    start: LaneStart, before: LaneStart, changed: Iterable[Difference], from_block: BlockNumber
) -> LaneStart:
    """Return a start that remembers the changes of an earlier one, and those that take effect from a block on."""
    now = (AcceptedChange(from_block, each.key, each.before, each.now) for each in changed)
    return replace(start, changes=(*before.changes, *now))


def started_epochs(epochs: Iterable[Epoch]) -> tuple[StartedEpoch, ...]:
    """Return a runtime's epochs as they are kept."""
    return tuple(StartedEpoch(epoch.from_block, epoch.digest.hex(), tuple(epoch.plugins())) for epoch in epochs)


def epoch_at(epochs: Sequence[StartedEpoch], block: BlockNumber) -> StartedEpoch | None:
    """Return the epoch in force in a block, or None if there is none."""
    return next((epoch for epoch in reversed(epochs) if epoch.from_block <= block), None)


def digest_in_force(folder: Path, lane: str, all_epochs: bytes, block: BlockNumber) -> bytes | None:
    """Return the runtime digest that a block's records carry, under the runtime whose digest over all epochs is ``all_epochs``.

    None if nothing is kept of that runtime: the job has started with another one since then, or the file cannot be used.
    """
    try:
        start = kept_starts(folder).get(lane)
    except UserError:
        return None
    epochs = () if start is None else start.epochs
    if digest_of_all((each.from_block, bytes.fromhex(each.digest)) for each in epochs) != all_epochs:
        return None
    found = epoch_at(epochs, block)
    return None if found is None else bytes.fromhex(found.digest)


# --- the files ---------------------------------------------------------------------------------------------------------------------------


def keep_start(folder: Path, lane: str, start: LaneStart) -> None:
    """Write what a lane began with, in place of what an earlier start kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{lane}{_SUFFIX}"
    written = path.with_name(f"{path.name}.new")
    written.write_text(json.dumps({_VERSION: START_VERSION, **asdict(start)}, indent=1) + "\n", encoding="utf-8")
    written.replace(path)


def kept_starts(folder: Path) -> dict[str, LaneStart]:
    """Return what is kept, by lane; empty if no job has started here. Raises `UserError` for a file that is damaged or newer.

    A hidden name is no lane's: other machines leave such files.
    """
    return {path.name.removesuffix(_SUFFIX): _read(path) for path in sorted(folder.glob(f"[!.]*{_SUFFIX}"))}


def _read(path: Path) -> LaneStart:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if "version" in values:
            folder = path.parent.parent
            raise UserError(
                f"{path}: it was written before the first release, whose state is not read: remove {folder / 'checkpoint'} and "
                f"{path.parent}, and start with --rebuild (docs/upgrade.md)"
            )
        version = values.pop(_VERSION)
        if version != START_VERSION:
            raise written_by_newer(path, START_VERSION, version)
        epochs = tuple(StartedEpoch(start, digest, tuple(plugins)) for start, digest, plugins in values.pop("epochs"))
        changes = tuple(AcceptedChange(*each) for each in values.pop("changes"))
        bytes.fromhex(values["rules"])
        return LaneStart(**values, epochs=epochs, changes=changes)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged ({error}): remove it, and the next start keeps what is configured then"
        ) from None


# --- comparing ---------------------------------------------------------------------------------------------------------------------------


def differences(lane: str, before: LaneStart, now: LaneStart) -> list[Difference]:
    """Return, in the order of `EFFECTS`, the keys of a chain that differ from what the lane began with.

    Keys that only describe the beginning are left out if they lead to the same state. A difference that no key explains has the chain's.
    """
    found = sorted(_of_keys(lane, before, now), key=lambda each: _ORDER[each.effect])
    same = (before.genesis, before.encoding_version) == (now.genesis, now.encoding_version)
    if same and before.first_block == now.first_block:
        return [each for each in found if each.effect is not Effect.BEGINNING]
    if before.encoding_version == now.encoding_version and not any(each.effect is Effect.BEGINNING for each in found):
        found.append(Difference(f"chains.{lane}", Effect.BEGINNING, f"state {before.genesis}", f"state {now.genesis}"))
    return found


_ORDER = {effect: number for number, effect in enumerate((Effect.NEVER, Effect.BEGINNING, Effect.ACCEPTED))}


def _of_keys(lane: str, before: LaneStart, now: LaneStart) -> Iterator[Difference]:
    if before.first_block != now.first_block:
        yield _difference(lane, "first_block", "", before.first_block, now.first_block)
    for name in sorted(before.meaning.keys() | now.meaning.keys()):
        one, other = before.meaning.get(name), now.meaning.get(name)
        if one == other or name == "first_block":
            continue
        if name == "genesis_paras":
            yield from _of_paras(lane, one or [], other or [])
        elif isinstance(one, dict) or isinstance(other, dict):
            for key in sorted((one or {}).keys() | (other or {}).keys()):
                values = ((one or {}).get(key), (other or {}).get(key))
                if values[0] != values[1]:
                    yield _difference(lane, name, f".{key}", *values)
        elif name == "dispatches_to_handlers":
            yield _difference(lane, "handlers", "", *("a list" if each else None for each in (one, other)))
        else:
            yield _difference(lane, name, "", one, other)


def _of_paras(lane: str, before: list[Any], now: list[Any]) -> Iterator[Difference]:
    one, other = ({para: values for para, *values in paras} for paras in (before, now))
    for para in sorted(one.keys() | other.keys()):
        place = f"[{para}]"
        if para not in one or para not in other:
            here, there = (dict(zip(("kind", "balance"), each.get(para, ()), strict=False)) for each in (one, other))
            yield _difference(lane, "genesis_paras", place, here or None, there or None)
            continue
        for name, old, new in zip(("kind", "balance"), one[para], other[para], strict=True):
            if old != new:
                yield _difference(lane, "genesis_paras", f"{place}.{name}", old, new)


def _difference(lane: str, name: str, rest: str, before: object, now: object) -> Difference:
    row = f"{CHAIN}.{name}"
    effect = Effect.BEGINNING if name == "genesis_paras" else EFFECTS.get(row, EFFECTS[LIMITS])
    return Difference(f"chains.{lane}.{name}{rest}", effect, _word(before), _word(now))


def _word(value: object) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else json.dumps(value)


def refuse_newer_pages(before: Mapping[str, LaneStart], now: Mapping[str, LaneStart]) -> None:
    """Raise `UserError` for the first lane, by name, whose pages a newer version of its protocol may have written."""
    for lane in sorted(before.keys() & now.keys()):
        found, known = before[lane].encoding_version, now[lane].encoding_version
        if found > known:
            raise UserError(
                f"lane {lane}: its pages have version {found}, and protocol {now[lane].meaning['protocol']} writes version {known}: a "
                "newer version of it has run here: install that one, or restore the backup from before the upgrade (docs/upgrade.md)"
            )


# --- deciding ----------------------------------------------------------------------------------------------------------------------------


def refuse_changes(
    lane: str,
    changed: list[Difference],
    accepted: Accepted,
    executed: BlockNumber | None,
    *,
    rebuild: bool,
    unfinished: bool = False,
) -> None:
    """Raise `UserError` for the first change of a lane that is not accepted.

    ``executed`` is the last block whose output is emitted, ``rebuild`` whether there is no checkpoint, and ``unfinished`` whether the
    checkpoint has a batch that the job began and did not complete.
    """
    for each in changed:
        others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        line = f"{each.key}: lane {lane} began with {each.before}, found {each.now}{others}"
        if each.effect is Effect.NEVER:
            raise UserError(
                f"{line}: it cannot change: put it back, or configure another chain with another [topics] prefix"
            )
        if each.effect is Effect.BEGINNING:
            if lane not in accepted.genesis:
                raise UserError(f"{line}: {_BEGINNING[rebuild].format(option=f'{OPTION} {lane}:{GENESIS}')}")
        elif not (rebuild and lane in accepted.genesis):
            _refuse_from_block(lane, line, accepted.blocks.get(lane), executed, rebuild=rebuild, unfinished=unfinished)


_BEGINNING = {
    False: "the lane has a state since then, which no configuration changes: put it back, or keep the lane's state and start once with "
    "{option}",
    True: "a rebuild would execute the emitted blocks from another state: put it back, or start once with {option}",
}


def _refuse_from_block(
    lane: str,
    line: str,
    block: BlockNumber | None,
    executed: BlockNumber | None,
    *,
    rebuild: bool,
    unfinished: bool,
) -> None:
    begins = 1 if executed is None else executed + 1
    option = f"{OPTION} {lane}:{begins}"
    if block is None:
        blocks = f"block {executed} is executed" if executed is not None else "records wait in it"
        raise UserError(f"{line}: {blocks}: put it back, or start once with {option}, and block {begins} is the first")
    if not rebuild and executed is not None and block != begins:
        raise UserError(
            f"{OPTION} {lane}:{block}: block {executed} is executed, so the change would begin with block {begins}: expected {option}"
        )
    if unfinished:
        raise UserError(
            f"{line}: the last batch of the checkpoint is not complete, and would be repeated with the change: put it back, let the job "
            "complete the batch, and change it then"
        )
