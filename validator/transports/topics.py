# SPDX-License-Identifier: Apache-2.0
"""The topics of installed plugins: those of their transports and of their jobs, with the form of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from validator.errors import UserError
from validator.job.installed import configured_job, every_chain, installed_jobs
from validator.plugin.registry import canonical, discover, load_all, transports_of
from validator.transports.runner import GROUP, shipped_transports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.config import Config
    from validator.plugin.job_api import Job, TopicForm


class PluginTopic(NamedTuple):
    """A topic that a plugin declares; ``owner`` is the transport or job that creates it at its first start."""

    name: str
    owner: str
    purpose: str
    form: TopicForm


def plugin_topics(config: Config) -> dict[str, PluginTopic]:
    """Return the topics of all plugins, installed and shipped, by name, sorted.

    A plugin that cannot be loaded, or that needs a table which the configuration lacks, is left out: `validator plugins list` says why.
    """
    found: dict[str, PluginTopic] = {}
    for each in (*_of_transports(config), *_of_jobs(config)):
        found.setdefault(each.name, each)
    return dict(sorted(found.items()))


def _of_transports(config: Config) -> Iterator[PluginTopic]:
    for plugin in (*load_all(discover(GROUP))[0], *shipped_transports(config)):
        name = plugin.manifest.name
        try:
            transports = transports_of(plugin, canonical(config.transports.get(name, {})))
        except UserError:
            continue
        for transport in transports:
            for own in transport.own:
                yield PluginTopic(own.topic.name, f"transport {name}", own.topic.purpose, own.form)


def _of_jobs(config: Config) -> Iterator[PluginTopic]:
    for job in installed_jobs(every_chain()):
        try:
            configured: Job = configured_job(config, job.name)
        except UserError:  # without a chain for it; the form of its records is the same
            configured = job
        purposes = {topic.name: topic.purpose for topic in configured.topics}
        for name, form in configured.forms.items():
            yield PluginTopic(name, f"job {job.name}", purposes.get(name, ""), form)
