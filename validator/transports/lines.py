# SPDX-License-Identifier: Apache-2.0
"""What transports say about lanes, for `validator lanes`: lines from their compacted topics, and who answers dry runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from validator.ask.dry_run_transport import NAME as DRY_RUN
from validator.errors import Unavailable, UserError
from validator.kafka.reader import TopicReader
from validator.plugin.registry import canonical, installed, transports_of
from validator.topics import DRY_RUN_REQUESTS
from validator.transports.lease import active_processes
from validator.transports.runner import GROUP, TransportGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.config import Config
    from validator.job.lag import NewestBlock
    from validator.plugin.api import Transport
    from validator.plugin.job_api import OwnTopic


def transport_lines(config: Config) -> dict[str, list[str]]:
    """Return lines by lane, from the plugins of `[transports]`, whose topics may not exist yet, and from the active process of `dry-run`.

    A plugin that cannot be loaded, or whose table is wrong, has none either: its own command says why. Raises `Unavailable` if no broker
    answers.
    """
    found: dict[str, list[str]] = {}
    for topic in _topics(config):
        for lane, line in sorted(_latest(config, topic).values()):
            found.setdefault(lane, []).append(line)
    active = active_processes(config.kafka, TransportGroup(config.kafka, config.topics.prefix, DRY_RUN).group_id)
    for lane in config.chains if active else ():
        found.setdefault(lane, []).append(f"dry runs: {', '.join(active)} answers {DRY_RUN_REQUESTS}")
    return found


class Fed(NamedTuple):
    """A lane whose blocks a transport sends, and the seconds without a new one after which something is wrong."""

    transport: str
    silent_after_s: float


def fed_lanes(config: Config) -> dict[str, Fed]:
    """Return the lanes that transports of `[transports]` feed; one that cannot be loaded feeds none, and its own command says why."""
    return {
        lane: Fed(transport.name, seconds)
        for transport in _transports(config)
        for lane, seconds in transport.feeds.items()
    }


def feed_of(fed: Fed, newest: NewestBlock | None, now_s: float) -> dict[str, Any]:
    """Return which transport sends a lane's blocks, the newest one that has arrived, and whether that is too long ago."""
    age_s = None if newest is None else round(max(0.0, now_s - newest.time_ms / 1000), 1)
    return {
        "transport": fed.transport,
        "silent_after_s": fed.silent_after_s,
        "newest_block": None if newest is None else newest.block,
        "age_s": age_s,
        "silent": age_s is None or age_s > fed.silent_after_s,
    }


def feed_lines(feed: dict[str, Any] | None) -> list[str]:
    """Return the line about a lane that a transport feeds, or none."""
    if feed is None:
        return []
    if not feed["silent"]:
        return [
            f"newest block {feed['newest_block']} arrived {_age(feed['age_s'])} ago, from transport {feed['transport']}"
        ]
    since = "no block among the last records" if feed["age_s"] is None else f"no new block for {_age(feed['age_s'])}"
    why = f"transport {feed['transport']} waits, has ended, or was never started"
    return [f"SILENT: {since}, expected one within {_age(feed['silent_after_s'])}: {why}"]


def _age(seconds: float) -> str:
    """Return a number of seconds as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"


def _topics(config: Config) -> list[OwnTopic]:
    own = (each for transport in _transports(config) for each in transport.own if each.line is not None)
    return list({each.topic.name: each for each in own}.values())


def _transports(config: Config) -> Iterator[Transport]:
    for name, table in sorted(config.transports.items()):
        try:
            for plugin in installed(GROUP, [name]).values():
                yield from transports_of(plugin, canonical(table))
        except UserError:
            continue


def _latest(config: Config, topic: OwnTopic) -> dict[bytes, tuple[str, str]]:
    found: dict[bytes, tuple[str, str]] = {}
    try:
        with TopicReader(config.kafka, config.topics.prefix, [topic.topic.name], newest=True) as reader:
            for record in reader.read_to_end():
                try:
                    assert topic.line is not None
                    found[record.key or b""] = topic.line(record.value)
                except ValueError:
                    continue  # of another version of the plugin
    except Unavailable:
        raise
    except UserError:
        return {}  # the transport has never run
    return found
