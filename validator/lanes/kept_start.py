# SPDX-License-Identifier: Apache-2.0
"""What each lane began with and runs under, in a file per lane in the job's folder, and how the present differs from it.

`validator.job.start_check` says which changes may be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from validator.config import Config, configuration_meaning
from validator.core.limits import U32_MAX
from validator.core.scale import DecodeError
from validator.core.types import BlockNumber
from validator.errors import UserError, written_by_newer
from validator.lanes.configured import started_chain
from validator.lanes.definition import LaneDefinition, journal_under_others
from validator.plugin.registry import PluginError
from validator.plugin.runtime import Epoch, RulesOutdated, digest_of_all, make_runtime

START_VERSION = 1
"""Also the version of what the job's folder holds: a new encoding in the store (head, journal, a parked lane) has a new one here. So an
earlier program refuses to start, instead of parking every lane with its first batch."""
_VERSION = "format"
"""The key of the version. It was ``version`` before the first release, when stores had other encodings by the same numbers."""
_SUFFIX = ".start"

NO_LIST = "none"
"""Stands for the handlers of a chain without the list."""

OPTION = "--accept-change"
"""The option with which a change becomes one on purpose."""


class AcceptedChange(NamedTuple):
    """A key that changed on purpose while the lane had a state. Blocks before ``from_block`` were executed under the earlier value."""

    from_block: BlockNumber
    key: str
    before: str
    now: str


class KeyChange(NamedTuple):
    """A key of a chain, by its name in the chain's table and by its whole path there, with its values in words."""

    name: str
    path: str
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


def start_of(config: Config, definition: LaneDefinition) -> LaneStart:
    """Return what a configured lane begins with. Raises `UserError` if its state file cannot be read."""
    digest = blake2b(digest_size=32)
    for page in definition.genesis:
        digest.update(len(page).to_bytes(8, "little") + page)
    epochs = started_epochs(definition.epochs)
    return LaneStart(
        definition.first_block,
        digest.hexdigest(),
        definition.protocol.encoding_version,
        meaning_of(config, definition.name),
        definition.encode_rules().hex(),
        epochs=epochs,
    )


def meaning_of(config: Config, lane: str) -> dict[str, Any]:
    """Return what a lane's configuration means, as a file holds it. Raises `UserError`."""
    plain: dict[str, Any] = json.loads(json.dumps(configuration_meaning(started_chain(config, lane)), default=str))
    return plain


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


def kept_rules(starts: Mapping[str, LaneStart]) -> dict[str, bytes]:
    """Return, by lane, what `LaneDefinition.encode_rules` returned at the last start."""
    return {lane: bytes.fromhex(start.rules) for lane, start in starts.items()}


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


def changed_keys(before: LaneStart, now: LaneStart) -> Iterator[KeyChange]:
    """Yield the keys of a chain whose meaning, or whose first block, has changed."""
    if before.first_block != now.first_block:
        yield _change("first_block", "", before.first_block, now.first_block)
    for name in sorted(before.meaning.keys() | now.meaning.keys()):
        one, other = before.meaning.get(name), now.meaning.get(name)
        if one == other or name == "first_block":
            continue
        if name == "genesis_paras":
            yield from _of_paras(one or [], other or [])
        elif isinstance(one, dict) or isinstance(other, dict):
            for key in sorted((one or {}).keys() | (other or {}).keys()):
                values = ((one or {}).get(key), (other or {}).get(key))
                if values[0] != values[1]:
                    yield _change(name, f".{key}", *values)
        elif name == "dispatches_to_handlers":
            yield _change("handlers", "", *("a list" if each else NO_LIST for each in (one, other)))
        else:
            yield _change(name, "", one, other)


def _of_paras(before: list[Any], now: list[Any]) -> Iterator[KeyChange]:
    one, other = ({para: values for para, *values in paras} for paras in (before, now))
    for para in sorted(one.keys() | other.keys()):
        place = f"[{para}]"
        if para not in one or para not in other:
            here, there = (dict(zip(("kind", "balance"), each.get(para, ()), strict=False)) for each in (one, other))
            yield _change("genesis_paras", place, here or None, there or None)
            continue
        for name, old, new in zip(("kind", "balance"), one[para], other[para], strict=True):
            if old != new:
                yield _change("genesis_paras", f"{place}.{name}", old, new)


def _change(name: str, rest: str, before: object, now: object) -> KeyChange:
    return KeyChange(name, f"{name}{rest}", _word(before), _word(now))


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


def rules_changed(kept: Mapping[str, bytes], definitions: Mapping[str, LaneDefinition]) -> bool:
    """Return whether any lane has other rules or handlers than those kept, whichever blocks they are for."""
    return any(_changed(kept, lane, definition) is not None for lane, definition in definitions.items())


def refuse_changed_past(
    kept_by_lane: Mapping[str, bytes],
    definitions: Mapping[str, LaneDefinition],
    executed_block: Callable[[str], BlockNumber | None],
    *,
    checkpoint: bool = False,
) -> None:
    """Raise `UserError` for the first lane whose rules or handlers differ from the kept ones in blocks that are executed.

    ``executed_block`` is asked only for lanes that changed. With a ``checkpoint``, rules that this program or its plugins do not have any
    more are an error, too, since the journal was written under them. Other bytes that cannot be compared are left to the store.
    """
    for lane, definition in definitions.items():
        kept = _changed(kept_by_lane, lane, definition)
        if kept is None:
            continue
        try:
            before = definition.under(kept)
        except (PluginError, RulesOutdated) as error:
            if checkpoint and executed_block(lane) is not None:
                raise UserError(journal_under_others(lane, error)) from None
            continue
        except (DecodeError, UserError):
            continue
        executed = executed_block(lane)
        if executed is None:
            continue
        definition.refuse_to_change_the_past(before, executed)
        if checkpoint:
            try:
                make_runtime(before.plan)
            except PluginError as error:
                raise UserError(journal_under_others(lane, error)) from None


def _changed(kept: Mapping[str, bytes], lane: str, definition: LaneDefinition) -> bytes | None:
    """Return a lane's kept rules if the present ones differ from them."""
    rules = kept.get(lane)
    return None if rules is None or rules == definition.encode_rules() else rules


# --- what is on purpose ------------------------------------------------------------------------------------------------------------------


GENESIS, REMOVED = "genesis", "removed"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The accepted changes of one start."""

    genesis: frozenset[str] = frozenset()
    """Lanes whose configured beginning may differ from the one that they had."""
    removed: frozenset[str] = frozenset()
    """Lanes that are no longer configured."""
    blocks: Mapping[str, BlockNumber] = field(default_factory=dict)
    """By lane, the first block that the changed configuration may judge."""

    def options(self) -> dict[str, str]:
        """Return each change as the option's value, with its lane."""
        return {
            **{f"{lane}:{GENESIS}": lane for lane in sorted(self.genesis)},
            **{f"{lane}:{REMOVED}": lane for lane in sorted(self.removed)},
            **{f"{lane}:{block}": lane for lane, block in sorted(self.blocks.items())},
        }


NOTHING = Accepted()


def read_accepted(texts: Iterable[str]) -> Accepted:
    """Return the changes that values of `--accept-change` name.

    Errors, in order: a value is not LANE:genesis, LANE:removed or LANE:BLOCK; a lane has two blocks.
    """
    genesis, removed, blocks = set(), set(), dict[str, BlockNumber]()
    for text in texts:
        lane, _, what = text.rpartition(":")
        if lane and what == GENESIS:
            genesis.add(lane)
        elif lane and what == REMOVED:
            removed.add(lane)
        elif lane and what.isascii() and what.isdecimal() and 1 <= int(what) <= U32_MAX:
            if blocks.setdefault(lane, int(what)) != int(what):
                raise UserError(f"{OPTION}: expected one block for lane {lane}, found {blocks[lane]} and {what}")
        else:
            raise UserError(
                f"{OPTION}: expected LANE:{GENESIS}, LANE:{REMOVED} or LANE:BLOCK with a block from 1 on, found {text!r}"
            )
    return Accepted(frozenset(genesis), frozenset(removed), blocks)
