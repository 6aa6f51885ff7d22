# SPDX-License-Identifier: Apache-2.0
"""What a start of the job looks at before it says that it is ready: does the configuration fit the checkpoint and the topics?

`look_offline` needs no broker, so `validator up` calls it before it starts one. `look` compares with Kafka. Neither writes anything; once
both have passed, the job keeps what it started with (`Look.keep`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from validator.checkpoint.files import (
    consumed_by_batch,
    has_checkpoint,
    has_unfinished_batch,
    last_begun_batch,
    refuse_another_prefix,
    refuse_foreign,
)
from validator.checkpoint.markers import read_markers
from validator.checkpoint.read_topics import checked_ids, keep_ids, kept_ids
from validator.checkpoint.retention import missing_blocks
from validator.checkpoint.second_look import Lack
from validator.checkpoint.sums import refuse_backwards, refuse_damaged
from validator.config.changes import Effect
from validator.config.explain import closest
from validator.errors import UserError
from validator.history.emitted import EmittedDiffers, compare_emitted
from validator.kafka.reader import TopicReader
from validator.lanes.accepted import GENESIS, OPTION, REMOVED, Accepted
from validator.lanes.configured import job_directory
from validator.lanes.definition import job_codec
from validator.lanes.kept_rules import EARLIER_SUFFIX, kept_rules, refuse_changed_past, rules_changed
from validator.lanes.kept_start import (
    LaneStart,
    differences,
    keep_start,
    kept_starts,
    refuse_changes,
    refuse_newer_pages,
    start_of,
    with_changes,
)
from validator.lanes.marker import Marker
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from validator.checkpoint.second_look import SecondLook
    from validator.config import Config
    from validator.core.types import BlockNumber
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition
    from validator.lanes.kept_start import AcceptedChange, Difference
    from validator.lanes.marker import Consumed

    Compared = Callable[[str, BlockNumber], None]
    """Called with a lane, and the last block that it has emitted, before these blocks are executed again."""

CHECKPOINT: Final = "checkpoint"

PROGRESS_S_MAX: Final = 60.0
"""Seconds that a start without a checkpoint or `--rebuild` waits, without progress, for transactions that are open on the markers."""


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
            (self.folder / f"{lane}{EARLIER_SUFFIX}").unlink(missing_ok=True)


def checkpoint_of(config: Config) -> Path:
    """Return the folder of the job's checkpoint."""
    return job_directory(config) / CHECKPOINT


def look_offline(config: Config) -> None:
    """Raise `UserError` if a configuration does not fit the checkpoint in the job's folder, as far as that says so without Kafka.

    Errors, in order: the state has files that are not Spark's; files of the checkpoint have changed since they were written; it belongs to
    another prefix; a batch ends before the one before it; what is kept next to it is damaged. Each of these may be of a newer version.
    """
    refuse_foreign(checkpoint_of(config))
    refuse_damaged(checkpoint_of(config))
    refuse_another_prefix(checkpoint_of(config), config.topics.prefix)
    refuse_backwards(checkpoint_of(config))
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
        close = closest(lane, known)
        meant = f", did you mean {close}" if close else ""
        raise UserError(f"{OPTION} {text}: no such lane{meant}; lanes are {', '.join(sorted(known))}")


def has_changed(config: Config, definitions: Mapping[str, LaneDefinition]) -> bool:
    """Return whether a lane is not what the last start in this folder kept of it."""
    folder = job_directory(config) / "lanes"
    before = kept_starts(folder)
    now = {lane: start_of(config, definition) for lane, definition in definitions.items()}
    changed = any(lane in before and differences(lane, before[lane], start) for lane, start in now.items())
    return changed or any(lane not in now for lane in before) or rules_changed(kept_rules(folder, before), definitions)


def look(
    config: Config,
    definitions: Mapping[str, LaneDefinition],
    accepted: Accepted,
    second: SecondLook,
    compared: Compared = lambda *_: None,
) -> Look:
    """Compare a configuration with the checkpoint and with Kafka.

    Errors, in order: those of `look_offline`; a newer version has run here; topics hold output, but there is no checkpoint and no
    `--rebuild`; a lane is no longer configured; a lane began with something else, or its rules or handlers differ for executed blocks; an
    accepted change is none; inputs are gone; a rebuild would differ from what is emitted; an input topic is another than the checkpoint has
    read.
    """
    look_offline(config)
    checkpoint = checkpoint_of(config)
    rebuild = not has_checkpoint(checkpoint)
    folder = job_directory(config) / "lanes"
    before = kept_starts(folder)
    now = {lane: start_of(config, definition) for lane, definition in definitions.items()}
    refuse_newer_pages(before, now)
    changed = {lane: differences(lane, before[lane], start) for lane, start in now.items() if lane in before}
    gone = {lane: start for lane, start in before.items() if lane not in now}
    rules = kept_rules(folder, before)
    ask = rebuild or any(changed.values()) or bool(gone) or rules_changed(rules, definitions)
    kafka, prefix = config.kafka, config.topics.prefix
    # after a crash a transaction may be open until the job takes over: a rebuild compares what is before it
    fresh = rebuild and not config.job.rebuild
    markers = read_markers(kafka, prefix, progress_s=PROGRESS_S_MAX if fresh else None) if ask else {}
    if fresh:
        refuse_written(prefix, checkpoint, definitions, markers)
    retired = {lane: marker.consumed for lane, marker in markers.items() if lane and lane not in definitions}
    _refuse_removed([*retired] if rebuild else [lane for lane in gone if lane in markers], before, markers, accepted)
    began = {lane: changed.get(lane, []) for lane in now if _has_begun(markers.get(lane), rebuild=rebuild)}
    for lane, found in began.items():
        unfinished = not rebuild and has_unfinished_batch(checkpoint)
        refuse_changes(lane, found, accepted, markers[lane].block, rebuild=rebuild, unfinished=unfinished)
    refuse_changed_past(rules, definitions, lambda lane: _block(markers, lane), checkpoint=not rebuild)
    if rebuild:
        _refuse_needless(accepted, {lane: [*found] for lane, found in began.items()}, retired, compares=True)
        second.refuse("first inputs", partial(cut_inputs, config, definitions))
        compare(config, definitions, markers, accepted, compared, before)
    else:
        _refuse_needless(accepted, began, gone, compares=False)
        second.refuse("ends of topics", partial(other_topics, config, checkpoint))
    ids = checked_ids(kafka, prefix, INPUT_TOPICS, checkpoint, second)
    removed = {lane: _removed(start) for lane, start in gone.items()}
    for lane in before.keys() & now.keys():
        # a rebuild executes every block under the present configuration, but what is emitted stays as it is
        found = [] if rebuild else began.get(lane, [])
        now[lane] = with_changes(now[lane], before[lane], found, (_block(markers, lane) or 0) + 1)
    return Look(folder, now, removed, accepted, retired, ids)


def refuse_written(
    prefix: str, checkpoint: Path, definitions: Mapping[str, LaneDefinition], markers: Mapping[str, Marker]
) -> None:
    """Raise `UserError` if Kafka already holds a lane's output, since a job without a checkpoint would start over.

    Nothing would be emitted twice. But if the chain itself has started over, its first blocks would count as already emitted.
    """
    for lane in definitions:
        block = _block(markers, lane)
        if block is not None:
            raise UserError(
                f"{prefix}verdicts holds lane {lane} up to block {block}, but {checkpoint} has no checkpoint: start with --rebuild to "
                "execute the inputs again and emit only what is missing, or use another [topics] prefix"
            )


def cut_inputs(config: Config, definitions: Mapping[str, LaneDefinition], kafka: KafkaTable) -> Lack | None:
    """Return whether retention has removed the first inputs of a lane, which would wait for them forever. Raises `UserError`."""
    starts = {lane: definition.first_block for lane, definition in definitions.items()}
    ahead = max((definition.settings.blocks_ahead_max for definition in definitions.values()), default=0)
    codec = job_codec(definitions.values())
    for lane, (block, lacks) in missing_blocks(kafka, config.topics.prefix, codec, starts, ahead).items():
        return Lack(
            f"lane {lane}: block {block} is missing: {lacks}",
            f"retention has removed the rest, and the lane cannot start with block {starts[lane]}: import the state after a later block "
            "with `validator lanes import`",
        )
    return None


def other_topics(config: Config, checkpoint: Path, kafka: KafkaTable) -> Lack | None:
    """Return whether an input topic ends before what the checkpoint has consumed: it was created again. Raises `UserError`.

    This needs no ids of topics, which a Kafka may not name, and an earlier version has not kept (`checkpoint.read_topics`).
    """
    consumed = consumed_by_batch(checkpoint, last_begun_batch(checkpoint))
    with TopicReader(kafka, config.topics.prefix, list(INPUT_TOPICS)) as reader:
        ends = {(config.topics.prefix + topic, part): end for (topic, part), (_, end) in reader.spans().items()}
    for (topic, partition), offset in sorted(consumed.items()):
        end = ends.get((topic, partition))
        if end is None or end < offset:
            found = "has no such partition" if end is None else f"ends at offset {end}"
            return Lack(
                f"{topic}[{partition}] {found}, but {checkpoint} has consumed it up to {offset}",
                "it is another topic or another Kafka than the job read: check [kafka] bootstrap.servers; if the topics were created "
                "again, remove the checkpoint",
            )
    return None


def _block(markers: Mapping[str, Marker], lane: str) -> BlockNumber | None:
    marker = markers.get(lane)
    return None if marker is None else marker.block


def _has_begun(marker: Marker | None, *, rebuild: bool) -> bool:
    """Return whether another beginning would matter: to the lane's state in the checkpoint, or to the blocks that it has emitted."""
    return marker is not None and (not rebuild or marker.block is not None)


def _refuse_removed(
    lanes: list[str], before: Mapping[str, LaneStart], markers: Mapping[str, Marker], accepted: Accepted
) -> None:
    for lane in sorted(lanes):
        if lane in accepted.removed or (lane in before and before[lane].removed):
            continue
        block = _block(markers, lane)
        did = "has records" if block is None else f"has emitted up to block {block}"
        raise UserError(
            f"chains.{lane}: the lane {did} and is not configured any more, so its further records would be dead letters: configure it "
            f"again, or start once with {OPTION} {lane}:{REMOVED}"
        )


def _removed(start: LaneStart) -> LaneStart:
    return replace(start, removed=True)


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
    needed |= {f"{lane}:{block}" for lane, block in accepted.blocks.items() if changed(lane, Effect.ACCEPTED)}
    for text, lane in accepted.options().items():
        if text not in needed:
            raise UserError(f"{OPTION} {text}: nothing of lane {lane} has changed so: start without it")


def compare(
    config: Config,
    definitions: Mapping[str, LaneDefinition],
    markers: Mapping[str, Marker],
    accepted: Accepted,
    compared: Compared,
    before: Mapping[str, LaneStart],
) -> None:
    """Execute lanes again up to what they have emitted. Raises `UserError` at the first difference."""
    codec = job_codec(definitions.values())
    for lane, definition in definitions.items():
        block = _block(markers, lane)
        if block is None or lane in accepted.genesis:
            continue
        last = min(block, accepted.blocks.get(lane, block + 1) - 1)
        compared(lane, last)
        try:
            compare_emitted(config.kafka, config.topics.prefix, codec, definition, last)
        except EmittedDiffers as error:
            changes = before[lane].changes if lane in before else ()
            raise UserError("; ".join([str(error), *map(_since, changes)])) from None


def _since(change: AcceptedChange) -> str:
    """Say from which block on a rebuild under the present value of a key can come out as it was emitted."""
    return (
        f"blocks before {change.from_block} were executed with {change.key} {change.before}, which was changed to {change.now} with "
        f"{OPTION}, and a rebuild executes every block under one value"
    )
