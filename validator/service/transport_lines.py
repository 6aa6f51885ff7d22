# SPDX-License-Identifier: Apache-2.0
"""What transports say about lanes, for `validator lanes`: lines from their compacted topics, and who answers dry runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.errors import Unavailable, UserError
from validator.kafka.reader import TopicReader
from validator.plugin.registry import canonical, installed, transports_of
from validator.service.dry_run_transport import NAME as DRY_RUN
from validator.service.lease import active_processes
from validator.service.transport import GROUP, TransportGroup
from validator.topics import DRY_RUN_REQUESTS

if TYPE_CHECKING:
    from validator.config import Config
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


def _topics(config: Config) -> list[OwnTopic]:
    found: dict[str, OwnTopic] = {}
    for name, table in sorted(config.transports.items()):
        try:
            for plugin in installed(GROUP, [name]).values():
                for transport in transports_of(plugin, canonical(table)):
                    found |= {each.topic.name: each for each in transport.own if each.line is not None}
        except UserError:
            continue
    return list(found.values())


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
