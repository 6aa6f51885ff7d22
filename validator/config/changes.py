# SPDX-License-Identifier: Apache-2.0
"""What may change between two starts of a job, and when the change takes effect: one row for every key of `validator.toml`.

The table is data. `validator.lanes.kept_start` compares the keys that decide a verdict, `docs/changing.md` shows all of them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import BaseModel

from validator.config.model import Config

if TYPE_CHECKING:
    from collections.abc import Iterator


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


CHAIN: Final = "chains.<lane>"

LIMITS: Final = f"{CHAIN}.limits"
"""The row of a chain's limits, whichever table its protocol keeps them in."""

EFFECTS: Final[dict[str, Effect]] = {
    "topics.prefix": Effect.NEVER,
    "topics.input_partitions": Effect.NEW_TOPICS,
    "topics.output_partitions": Effect.NEW_TOPICS,
    "topics.replication_factor": Effect.NEW_TOPICS,
    "topics.retention_ms": Effect.NEW_TOPICS,
    "kafka": Effect.START,
    "job.directory": Effect.NEVER,
    "job.master": Effect.START,
    "job.state_partitions": Effect.NEW_CHECKPOINT,
    "job.driver_memory": Effect.START,
    "job.worker_memory": Effect.START,
    "job.jit": Effect.START,
    "job.trigger_interval_ms": Effect.START,
    "job.max_records_per_trigger": Effect.START,
    "job.rebuild": Effect.START,
    "job.give_up_after": Effect.START,
    "job.stalled_after": Effect.START,
    "job.blocks_ahead_max": Effect.START,
    "job.waiting_bytes_max": Effect.START,
    "job.duplicate_window_blocks": Effect.NEXT_BLOCK,
    "job.handler_seconds_max": Effect.START,
    "job.headroom_interval_blocks": Effect.NEXT_BLOCK,
    "job.root_interval_blocks": Effect.NEXT_BLOCK,
    "dead_letters.attempts_max": Effect.START,
    "metrics.listen": Effect.START,
    "metrics.transports": Effect.START,
    "metrics.paras": Effect.START,
    "metrics.paras_max": Effect.START,
    "metrics.channels_max": Effect.START,
    "schema_registry.url": Effect.START,
    "schema_registry.user": Effect.START,
    "schema_registry.password": Effect.START,
    "schema_registry.ca_file": Effect.START,
    "schema_registry.certificate_file": Effect.START,
    "schema_registry.key_file": Effect.START,
    "schema_registry.key_password": Effect.START,
    "schema_registry.subjects": Effect.START,
    "schema_registry.write": Effect.START,
    "audit.share": Effect.START,
    "audit.on_fault": Effect.START,
    "plugins.lock": Effect.START,
    "plugins.artefacts": Effect.START,
    CHAIN: Effect.CHAIN,
    f"{CHAIN}.protocol": Effect.NEVER,
    f"{CHAIN}.enactment": Effect.ACCEPTED,
    f"{CHAIN}.balances": Effect.BEGINNING,
    f"{CHAIN}.hrmp_notifications": Effect.BEGINNING,
    f"{CHAIN}.first_block": Effect.BEGINNING,
    f"{CHAIN}.state": Effect.BEGINNING,
    LIMITS: Effect.BEGINNING,
    f"{CHAIN}.genesis_paras.para_id": Effect.BEGINNING,
    f"{CHAIN}.genesis_paras.kind": Effect.BEGINNING,
    f"{CHAIN}.genesis_paras.balance": Effect.BEGINNING,
    f"{CHAIN}.ump_default_weight": Effect.ACCEPTED,
    f"{CHAIN}.ump_weights": Effect.ACCEPTED,
    f"{CHAIN}.ump_failing_messages": Effect.ACCEPTED,
    f"{CHAIN}.ump_message_weight_max": Effect.ACCEPTED,
    f"{CHAIN}.handlers": Effect.ACCEPTED,
    f"{CHAIN}.handlers.name": Effect.FROM_BLOCK,
    f"{CHAIN}.handlers.version": Effect.FROM_BLOCK,
    f"{CHAIN}.handlers.from_block": Effect.FROM_BLOCK,
    f"{CHAIN}.handlers.removed": Effect.FROM_BLOCK,
    f"{CHAIN}.handlers.config": Effect.FROM_BLOCK,
    f"{CHAIN}.rules.from_block": Effect.FROM_BLOCK,
    f"{CHAIN}.rules.profile": Effect.FROM_BLOCK,
    f"{CHAIN}.rules.features": Effect.FROM_BLOCK,
    "transports": Effect.START,
    "jobs": Effect.START,
}
"""When a change of a key takes effect. Entries of a list share a row; a table with free keys has one."""


def configuration_keys() -> list[str]:
    """Return every key of the configuration, as `EFFECTS` names it, in the model's order."""
    return list(_keys(Config, ""))


def _keys(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{path}{name}"
        inner = _table_in(field.annotation)
        if inner is None:
            yield key
        elif key == "chains":
            yield from (CHAIN, *_keys(inner, f"{CHAIN}."))
        else:
            if key == f"{CHAIN}.handlers":  # without the list, messages are only weighed: that it exists matters, too
                yield key
            yield from _keys(inner, f"{key}.")


def _table_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a table, or of the tables in a list or table; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _table_in(each)) is not None), None)
