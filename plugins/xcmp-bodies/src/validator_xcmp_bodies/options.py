# SPDX-License-Identifier: Apache-2.0
"""The table `[jobs.xcmp-bodies]` of the configuration, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from validator.plugin.job_api import JobContext, UserError
from validator.plugin.protocol_api import U32_MAX
from validator_xcmp_bodies import limits
from validator_xcmp_bodies.outcomes import Settings

PROTOCOL: Final = "xcmp-network"
"""Chains of this protocol have bodies, unless the table names the chains."""
CAPACITY_LIMIT: Final = "max_channel_messages"
"""The limit of that protocol that bounds a channel; senders see it as the capacity in their credits."""

_RANGES: Final = {
    "buckets": (1, limits.BUCKETS_MAX),
    "retention_hours": (limits.RETENTION_HOURS_MIN, 24 * 365),
    "wanted_after_blocks": (1, U32_MAX),
    "wanted_interval_blocks_max": (1, U32_MAX),
    "wanted_per_batch_max": (1, 65_536),
    "sender_requests": (0, U32_MAX),
    "unlisted_bytes": (0, limits.UNLISTED_TOTAL_BYTES_MAX),
    "unlisted_blocks": (1, U32_MAX),
    "alarm_blocks": (1, U32_MAX),
    "capacity_messages": (1, U32_MAX),
}


@dataclass(frozen=True, slots=True)
class Options:
    """``buckets`` is into how many shares a chain's recipients are divided; it can never change once the job has run."""

    chains: tuple[str, ...]
    settings: Mapping[str, Settings]
    """By chain."""
    buckets: int = 1
    retention_hours: int = limits.RETENTION_HOURS_MIN

    @classmethod
    def read(cls, context: JobContext) -> Options:
        """Read the table. Raises `UserError` that names the key, what was expected and what was found."""
        where = f"[jobs.{context.name}]"
        options = dict(context.options)
        chains = _chains(where, options.pop("chains", None), context.chains)
        for key, value in options.items():
            if key not in _RANGES:
                raise UserError(f"{where} {key}: no such key; there are chains, {', '.join(_RANGES)}")
            _number(where, key, value)
        buckets = options.pop("buckets", 1)
        retention = options.pop("retention_hours", limits.RETENTION_HOURS_MIN)
        settings = {
            lane: Settings(**{"capacity_messages": _capacity(context.chains[lane]), **options}) for lane in chains
        }
        return cls(chains, settings, buckets, retention)


def alarm_blocks(name: str, table: Mapping[str, Any]) -> int:
    """Return the key of a job's table, or its default; other keys are not looked at. Raises `UserError`."""
    return _number(f"[jobs.{name}]", "alarm_blocks", table.get("alarm_blocks", limits.ALARM_BLOCKS))


def _number(where: str, key: str, value: Any) -> int:
    least, most = _RANGES[key]
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{where} {key}: expected {least} to {most}, found {value!r}")
    return value


def _chains(where: str, named: Any, configured: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    if named is None:
        chains = sorted(lane for lane, chain in configured.items() if chain["protocol"] == PROTOCOL)
        if not chains:
            raise UserError(f"{where} chains: no chain has protocol {PROTOCOL!r}: name the chains that have bodies")
        return tuple(chains)
    if not isinstance(named, list | tuple) or not named or not all(isinstance(lane, str) for lane in named):
        raise UserError(f"{where} chains: expected a list of chains, found {named!r}")
    for lane in named:
        if lane not in configured:
            raise UserError(f"{where} chains: {lane} is not configured in [chains]")
    return tuple(sorted(set(named)))


def _capacity(chain: Mapping[str, Any]) -> int:
    for table in chain.get("limits", {}).values():
        if isinstance(table, Mapping) and isinstance(table.get(CAPACITY_LIMIT), int):
            return int(table[CAPACITY_LIMIT])
    return limits.CAPACITY_MESSAGES
