# SPDX-License-Identifier: Apache-2.0
"""Is a start of the job compatible with what the job has executed and emitted?

A lane that has a state does not look at its beginning again, and a rebuild knows only the configuration of today. So a change there would
be ignored by the one, and silently give other results in the other. `TABLE` says for each key when a change takes effect, and with what a
start compares it. A start looks at, in this order:

1. the job's own files, without Kafka (`look_offline`): are they as they were written, and of these topics? Before a broker is started,
   `refuse_without_kafka` looks at 4, 5 and 6, too, as of the last orderly stop
2. the versions of the lanes' pages: has a newer program run here?
3. the markers, if there is neither a checkpoint nor `--rebuild`: do topics hold verdicts already?
4. lanes that are no longer configured
5. the keys of each lane (`differences`), against what it began with (`lanes.kept_start`)
6. its rules and handlers, for executed blocks
7. accepted changes that are none
8. Kafka: before a rebuild, that all inputs are there and lead to what is emitted; else, that the topics reach as far as the checkpoint;
   in any case their ids (`checkpoint.kafka`, which looks again before each query)

`look` does this for the lanes' job, and writes nothing; once all has passed, the job keeps what it started with (`Look.keep`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from validator.checkpoint.files import check_files, checkpoint_id, has_checkpoint, has_unfinished_batch
from validator.checkpoint.kafka import (
    checked_ids,
    cut_inputs,
    keep_ids,
    kept_ids,
    other_topics,
    refuse_written,
)
from validator.checkpoint.markers import read_markers
from validator.errors import UserError
from validator.history.emitted import compare_lanes
from validator.lanes.configured import (
    chain_runtime,
    configured_lock,
    definition_beside,
    job_directory,
    started_chain,
)
from validator.lanes.kept_start import (
    GENESIS,
    NO_LIST,
    NOTHING,
    OPTION,
    REMOVED,
    Accepted,
    AcceptedChange,
    LaneStart,
    changed_keys,
    keep_start,
    kept_rules,
    kept_starts,
    meaning_of,
    refuse_changed_past,
    refuse_newer_pages,
    rules_changed,
    start_of,
    started_epochs,
)
from validator.names import closest
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from validator.checkpoint.kafka import SecondLook
    from validator.config import Config
    from validator.core.types import BlockNumber
    from validator.lanes.definition import LaneDefinition
    from validator.lanes.kept_start import StartedEpoch
    from validator.lanes.marker import Consumed

CHECKPOINT: Final = "checkpoint"
EXECUTED: Final = ".executed.json"

PROGRESS_S_MAX: Final = 60.0
"""Seconds that a start without a checkpoint or `--rebuild` waits, without progress, for transactions that are open on the markers."""


# --- the table ---------------------------------------------------------------------------------------------------------------------------


class Effect(Enum):
    """When a changed key takes effect; the value is the text on the page."""

    START = "at the next start"
    NEW_TOPICS = "for topics that are created later"
    NEW_CHECKPOINT = "with a new checkpoint"
    NEXT_BLOCK = "from the next block on"
    FROM_BLOCK = "from its block on, which must not be executed"
    ACCEPTED = "from the next block on, with `--accept-change LANE:BLOCK`"
    BEGINNING = "for a lane that starts over, with `--accept-change LANE:genesis`"
    CHAIN = "added at any time; removed with `--accept-change LANE:removed`"
    NEVER = "never"


class Row(NamedTuple):
    """When a change of some keys takes effect, and with what a start compares them (empty: not at all).

    A key that begins with a dot is of `chains.<lane>`. What holds for a key holds for those below it.
    """

    effect: Effect
    compared: str
    keys: str


CHAIN: Final = "chains.<lane>"
_KEPT: Final = "with `lanes/<lane>.start`"

TABLE: Final = (
    Row(Effect.NEVER, "with the topics of the checkpoint", "topics.prefix"),
    Row(Effect.NEVER, "", "job.directory"),
    Row(Effect.NEVER, _KEPT, ".protocol"),
    Row(Effect.NEW_TOPICS, "", "topics"),
    Row(Effect.NEW_CHECKPOINT, "", "job.state_partitions"),
    Row(Effect.START, "the input topics' ids and ends, with the checkpoint", "kafka"),
    Row(Effect.START, "", "job.master job.driver_memory job.worker_memory job.jit job.trigger_interval_ms job.rebuild"),
    Row(Effect.START, "", "job.max_records_per_trigger job.give_up_after job.stalled_after job.handler_seconds_max"),
    Row(Effect.START, "", "job.blocks_ahead_max job.waiting_bytes_max dead_letters metrics schema_registry audit"),
    Row(Effect.START, "", "plugins transports jobs .names"),
    Row(Effect.NEXT_BLOCK, "", "job.duplicate_window_blocks job.headroom_interval_blocks job.root_interval_blocks"),
    Row(Effect.CHAIN, "with `lanes/`, and the markers on Kafka", CHAIN),
    Row(
        Effect.BEGINNING, f"{_KEPT}, if it leads to another state", ".balances .hrmp_notifications .first_block .state"
    ),
    Row(Effect.BEGINNING, f"{_KEPT}, if it leads to another state", ".limits .genesis_paras"),
    Row(Effect.ACCEPTED, _KEPT, ".enactment .ump_default_weight .ump_weights .ump_failing_messages"),
    Row(Effect.ACCEPTED, _KEPT, ".ump_message_weight_max"),
    Row(
        Effect.FROM_BLOCK,
        f"{_KEPT}, for executed blocks",
        ".handlers .handlers.name .handlers.version .handlers.from_block",
    ),
    Row(Effect.FROM_BLOCK, f"{_KEPT}, for executed blocks", ".handlers.removed .handlers.config .rules"),
)
"""Every key of `validator.toml`, or a table that has it; ``.limits`` is whichever table a chain's protocol keeps its limits in.

`docs/changing.md` shows each key.
"""

ROWS: Final = {f"{CHAIN}{key}" if key[0] == "." else key: row for row in TABLE for key in row.keys.split()}
"""The table by key."""


# --- the keys of a lane ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose value is not the one that a lane began with."""

    key: str
    effect: Effect
    before: str
    now: str


def differences(lane: str, before: LaneStart, now: LaneStart) -> list[Difference]:
    """Return the keys of a chain that differ from what the lane began with: first what never changes, then the beginning.

    Keys that only describe the beginning are left out if they lead to the same state. A difference that no key explains has the chain's.
    """
    found = []
    for each in changed_keys(before, now):
        effect = ROWS.get(f"{CHAIN}.{each.name}", ROWS[f"{CHAIN}.limits"]).effect
        if (
            effect is Effect.FROM_BLOCK and each.before != NO_LIST
        ):  # it also decides about messages that no handler takes
            effect = Effect.ACCEPTED
        found.append(Difference(f"chains.{lane}.{each.path}", effect, each.before, each.now))
    found.sort(key=lambda each: (Effect.NEVER, Effect.BEGINNING, Effect.ACCEPTED, Effect.FROM_BLOCK).index(each.effect))
    same = (before.genesis, before.encoding_version) == (now.genesis, now.encoding_version)
    if same and before.first_block == now.first_block:
        return [each for each in found if each.effect is not Effect.BEGINNING]
    if before.encoding_version == now.encoding_version and not any(each.effect is Effect.BEGINNING for each in found):
        found.append(Difference(f"chains.{lane}", Effect.BEGINNING, f"state {before.genesis}", f"state {now.genesis}"))
    return found


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
    begins = 1 if executed is None else executed + 1
    block, option = accepted.blocks.get(lane), f"{OPTION} {lane}:{begins}"
    for each in changed:
        others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        line = f"{each.key}: lane {lane} began with {each.before}, found {each.now}{others}"
        if each.effect is Effect.NEVER:
            raise UserError(
                f"{line}: it cannot change: put it back, or configure another chain with another [topics] prefix"
            )
        if lane in accepted.genesis and (rebuild or each.effect is Effect.BEGINNING):
            continue
        if each.effect is Effect.BEGINNING:
            raise UserError(f"{line}: {_BEGINNING[rebuild]} {OPTION} {lane}:{GENESIS}")
        if each.effect is Effect.FROM_BLOCK and not unfinished:
            continue  # of its blocks `refuse_changed_past` judges
        if block is None and each.effect is not Effect.FROM_BLOCK:
            blocks = f"block {executed} is executed" if executed is not None else "records wait in it"
            raise UserError(
                f"{line}: {blocks}: put it back, or start once with {option}, and block {begins} is the first"
            )
        if block is not None and not rebuild and executed is not None and block != begins:
            raise UserError(
                f"{OPTION} {lane}:{block}: block {executed} is executed, so the change would begin with block {begins}: expected {option}"
            )
        if unfinished:
            raise UserError(
                f"{line}: the last batch of the checkpoint is not complete, and would be repeated with the change: put it back, let the "
                "job complete the batch, and change it then"
            )


_BEGINNING = {
    False: "the lane has a state since then, which no configuration changes: put it back, or keep the lane's state and start once with",
    True: "a rebuild would execute the emitted blocks from another state: put it back, or start once with",
}


def refusal_of(
    config: Config, lane: str, before: LaneStart, epochs: Sequence[StartedEpoch] | None, executed: BlockNumber | None
) -> str | None:
    """Return the line with which a start without options would refuse a lane that has taken records, or None.

    ``before`` is what the lane began with, ``epochs`` comes from the configuration. The lane's state is read only if either
    differs. Without a checkpoint a start asks for `--rebuild` first, and compares the lane's output instead.
    """
    if not has_checkpoint(checkpoint_of(config)):
        return None
    try:
        if meaning_of(config, lane) == before.meaning and epochs == before.epochs:
            return None
        definition = definition_beside(config, lane)
        changed = differences(lane, before, start_of(config, definition))
        refuse_changes(lane, changed, NOTHING, executed, rebuild=False)
        rules = kept_rules({lane: before})
        refuse_changed_past(rules, {lane: definition}, lambda _: executed, checkpoint=True)
    except UserError as error:
        return str(error)
    return None


def note_executed(config: Config) -> None:
    """Keep what each lane has executed, for `refuse_without_kafka` of the next start. Raises `UserError` if Kafka does not answer."""
    checkpoint = checkpoint_of(config)
    if not has_checkpoint(checkpoint):
        return
    markers = read_markers(config.kafka, config.topics.prefix)
    blocks = {lane: marker.block for lane, marker in markers.items() if lane}
    noted = {"checkpoint": checkpoint_id(checkpoint), "blocks": blocks}
    (job_directory(config) / "lanes" / EXECUTED).write_text(json.dumps(noted) + "\n", encoding="utf-8")


def refuse_without_kafka(config: Config, accepted: Accepted) -> None:
    """Raise `UserError` for a changed lane that `look` would refuse, by what `note_executed` has kept, which may be old."""
    checkpoint, folder = checkpoint_of(config), job_directory(config) / "lanes"
    if not has_checkpoint(checkpoint):
        return
    try:
        noted = json.loads((folder / EXECUTED).read_text(encoding="utf-8"))
        blocks = noted["blocks"] if noted["checkpoint"] == checkpoint_id(checkpoint) else {}
    except (OSError, ValueError, TypeError, KeyError):  # nobody has kept it, or a write was cut off: `look` asks Kafka
        return
    before = kept_starts(folder)
    _refuse_removed((before.keys() & blocks.keys()) - config.chains.keys(), before, blocks, accepted)
    for lane in sorted(before.keys() & blocks.keys() & config.chains.keys()):
        if lane in accepted.genesis or lane in accepted.blocks:
            continue
        runtime = chain_runtime(started_chain(config, lane), lane, configured_lock(config))
        refused = refusal_of(config, lane, before[lane], started_epochs(runtime.epochs), blocks[lane])
        if refused is not None:
            raise UserError(refused)


# --- a start -----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """A configuration that fits, and what the job needs to know of the topics."""

    folder: Path
    starts: Mapping[str, LaneStart]
    removed: Mapping[str, LaneStart]
    accepted: Accepted
    retired: Mapping[str, Consumed] = field(default_factory=dict)
    """By lane that is no longer configured, what it has consumed: none of it becomes a dead letter again."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """By input topic, its id."""

    def keep(self) -> None:
        """Write what the lanes start with, and from which topics, for the next start to compare."""
        keep_ids(self.folder.with_name(CHECKPOINT), self.ids)
        for lane, start in {**self.removed, **self.starts}.items():
            keep_start(self.folder, lane, start)


def checkpoint_of(config: Config) -> Path:
    return job_directory(config) / CHECKPOINT


def look_offline(config: Config) -> None:
    """Raise `UserError` if a configuration does not fit the checkpoint in the job's folder, as far as that says so without Kafka.

    Errors, in order: those of `check_files`; what is kept next to the checkpoint is damaged, or of a newer version.
    """
    check_files(checkpoint_of(config), config.topics.prefix)
    kept_starts(job_directory(config) / "lanes")
    kept_ids(checkpoint_of(config))


def check_accepted(config: Config, accepted: Accepted) -> None:
    """Raise `UserError` for an accepted change of a lane that neither the configuration nor the job's folder knows.

    Without a checkpoint a removed lane may be known from its topics alone, so `look` judges it.
    """
    known = {*config.chains, *kept_starts(job_directory(config) / "lanes")}
    for text, lane in accepted.options().items():
        if lane in known or (lane in accepted.removed and not has_checkpoint(checkpoint_of(config))):
            continue
        meant = f", did you mean {close}" if (close := closest(lane, known)) else ""
        raise UserError(f"{OPTION} {text}: no such lane{meant}; lanes are {', '.join(sorted(known))}")


class _Lanes:
    """What is kept of each lane, and what the configuration says of it."""

    def __init__(self, config: Config, definitions: Mapping[str, LaneDefinition]) -> None:
        self.folder = job_directory(config) / "lanes"
        self.before = kept_starts(self.folder)
        self.now = {lane: start_of(config, definition) for lane, definition in definitions.items()}
        self.both = [lane for lane in self.now if lane in self.before]
        self.changed = {lane: differences(lane, self.before[lane], self.now[lane]) for lane in self.both}
        self.gone = {lane: start for lane, start in self.before.items() if lane not in self.now}
        self.rules = kept_rules(self.before)
        self.have_changed = any(self.changed.values()) or bool(self.gone) or rules_changed(self.rules, definitions)


def has_changed(config: Config, definitions: Mapping[str, LaneDefinition]) -> bool:
    """Return whether a lane is not what the last start in this folder kept of it."""
    return _Lanes(config, definitions).have_changed


def look(
    config: Config,
    definitions: Mapping[str, LaneDefinition],
    accepted: Accepted,
    second: SecondLook,
    compared: Callable[[str, BlockNumber], None] = lambda *_: None,
) -> Look:
    """Compare a configuration with the checkpoint and with Kafka; the errors, in order, are on top of this module.

    ``compared`` is of `compare_lanes`. Raises `UserError`, of which `Unavailable` may pass.
    """
    look_offline(config)  # 1: the numbers are those on top
    checkpoint = checkpoint_of(config)
    rebuild = not has_checkpoint(checkpoint)
    lanes = _Lanes(config, definitions)
    refuse_newer_pages(lanes.before, lanes.now)  # 2
    kafka, prefix = config.kafka, config.topics.prefix
    # after a crash a transaction may be open until the job takes over: a rebuild compares what is before it
    fresh = rebuild and not config.job.rebuild
    asks, progress_s = rebuild or lanes.have_changed, PROGRESS_S_MAX if fresh else None
    markers = read_markers(kafka, prefix, progress_s=progress_s) if asks else {}
    emitted = {lane: marker.block for lane, marker in markers.items()}
    if fresh:  # 3
        refuse_written(prefix, checkpoint, definitions, markers)
    retired = {lane: marker.consumed for lane, marker in markers.items() if lane and lane not in definitions}
    _refuse_removed(retired if rebuild else lanes.gone.keys() & markers.keys(), lanes.before, emitted, accepted)  # 4
    # another beginning matters to a lane's state in the checkpoint, or to the blocks that it has emitted
    began = {
        lane: lanes.changed.get(lane, [])
        for lane in lanes.now
        if lane in markers and (not rebuild or emitted[lane] is not None)
    }
    unfinished = not rebuild and has_unfinished_batch(checkpoint)
    for lane, found in began.items():  # 5
        refuse_changes(lane, found, accepted, emitted[lane], rebuild=rebuild, unfinished=unfinished)
    refuse_changed_past(lanes.rules, definitions, emitted.get, checkpoint=not rebuild)  # 6
    _refuse_needless(accepted, began, retired if rebuild else lanes.gone, compares=rebuild)  # 7
    if rebuild:  # 8
        second.refuse("first inputs", partial(cut_inputs, config, definitions))
        compare_lanes(config, definitions, emitted, accepted, lanes.before, compared)
    else:
        second.refuse("ends of topics", partial(other_topics, config, checkpoint))
    ids = checked_ids(kafka, prefix, INPUT_TOPICS, checkpoint, second)
    for lane in lanes.both:
        # a rebuild executes every block under the present configuration, but what is emitted stays as it is
        found, begins = [] if rebuild else began.get(lane, []), (emitted.get(lane) or 0) + 1
        changes = (AcceptedChange(begins, each.key, each.before, each.now) for each in found)
        lanes.now[lane] = replace(lanes.now[lane], changes=(*lanes.before[lane].changes, *changes))
    gone = {lane: replace(start, removed=True) for lane, start in lanes.gone.items()}
    return Look(lanes.folder, lanes.now, gone, accepted, retired, ids)


def _refuse_removed(
    lanes: Collection[str],
    before: Mapping[str, LaneStart],
    emitted: Mapping[str, BlockNumber | None],
    accepted: Accepted,
) -> None:
    for lane in sorted(lanes):
        if lane in accepted.removed or (lane in before and before[lane].removed):
            continue
        block = emitted[lane]
        did = "has records" if block is None else f"has emitted up to block {block}"
        raise UserError(
            f"chains.{lane}: the lane {did} and is not configured any more, so its further records would be dead letters: configure it "
            f"again, or start once with {OPTION} {lane}:{REMOVED}"
        )


def _refuse_needless(
    accepted: Accepted, began: Mapping[str, list[Difference]], gone: Collection[str], *, compares: bool
) -> None:
    """Raise `UserError` for an accepted change that there is not: an option that stays would accept the next one unseen.

    ``compares`` says whether a rebuild follows, which may need any change of a lane that has emitted blocks.
    """

    def changed(lane: str, effect: Effect) -> bool:
        return lane in began and (compares or any(each.effect is effect for each in began[lane]))

    needed = {f"{lane}:{REMOVED}" for lane in gone}
    needed |= {f"{lane}:{GENESIS}" for lane in accepted.genesis if changed(lane, Effect.BEGINNING)}
    needed |= {
        f"{lane}:{block}"
        for lane, block in accepted.blocks.items()
        if changed(lane, Effect.ACCEPTED) or changed(lane, Effect.FROM_BLOCK)
    }
    for text, lane in accepted.options().items():
        if text not in needed:
            raise UserError(f"{OPTION} {text}: nothing of lane {lane} has changed so: start without it")
