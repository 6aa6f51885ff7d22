# SPDX-License-Identifier: Apache-2.0
"""What a parked lane that gives its state up takes again, and whether that can lead to what it has emitted.

It is a rebuild of one lane while the job runs, so it is refused for the same reasons as a start of the job with `--rebuild`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from validator.checkpoint.files import consumed_by_batch, last_committed_batch
from validator.checkpoint.markers import read_markers
from validator.checkpoint.second_look import PERSON_S, SecondLook
from validator.codec.orders import InputSpan
from validator.core.limits import ORDER_SPANS_MAX
from validator.errors import UserError
from validator.job.look import compare, cut_inputs
from validator.kafka.reader import TopicReader
from validator.lanes.accepted import NOTHING
from validator.lanes.configured import job_directory, lane_definition
from validator.lanes.kept_start import differences, kept_starts, start_of
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from validator.config import Config


def check_beginning(config: Config, lane: str) -> None:
    """Check that a lane can be executed again from its first block.

    Errors, in order, each a `UserError`: the configuration differs from what the job has started with; retention has removed inputs; what
    the lane has emitted comes out differently.
    """
    definition = lane_definition(config, lane)
    folder = job_directory(config) / "lanes"
    kept = kept_starts(folder).get(lane)
    if kept is not None and differences(lane, kept, start_of(config, definition)):
        raise UserError(
            f"lane {lane}: the configuration differs from what the job has started with: start the job with it, or put it back"
        )
    SecondLook(config.kafka, PERSON_S).refuse_soon("first inputs", partial(cut_inputs, config, {lane: definition}))
    markers = read_markers(config.kafka, config.topics.prefix)
    before = {} if kept is None else {lane: kept}
    compare(config, {lane: definition}, markers, NOTHING, lambda *_: None, before)


def inputs_of_job(config: Config, lane: str) -> tuple[InputSpan, ...]:
    """Return what the job has read of each partition. A lane that is parked holds everything after that.

    Raises `UserError` if there is no checkpoint here, since nobody else knows, or there are too many partitions.
    """
    checkpoint = job_directory(config) / "checkpoint"
    try:
        ends = consumed_by_batch(checkpoint, last_committed_batch(checkpoint))
    except (UserError, OSError) as error:
        raise UserError(f"lane {lane}: --rebuild is for the machine with the job's checkpoint: {error}") from error
    prefix = config.topics.prefix
    with TopicReader(config.kafka, prefix, list(INPUT_TOPICS)) as reader:
        firsts = {(prefix + topic, partition): first for (topic, partition), (first, _) in reader.spans().items()}
    spans = [InputSpan(*place, firsts[place], end) for place, end in ends.items() if firsts.get(place, end) < end]
    if len(spans) > ORDER_SPANS_MAX:
        raise UserError(f"lane {lane}: expected at most {ORDER_SPANS_MAX} partitions with inputs, found {len(spans)}")
    return tuple(sorted(spans))
