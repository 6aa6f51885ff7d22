# SPDX-License-Identifier: Apache-2.0
"""What is installed: the jobs of plugins, as the configuration describes them, and the schemas of everything."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeAlias

from validator.codec.schemas import SchemaSet, schemas, schemas_of
from validator.errors import UserError
from validator.kafka.topics import create_topics
from validator.lanes.configured import job_directory
from validator.plugin.job_api import JOBS, JobContext, open_job
from validator.plugin.registry import discover, load_all, protocols_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from validator.codec.schemas import Schema
    from validator.config import Config
    from validator.plugin.job_api import Job
    from validator.plugin.protocol_api import ProtocolDefinition

PROTOCOLS = "validator.protocols"

Chains: TypeAlias = Mapping[str, Mapping[str, Any]]


def all_schemas() -> tuple[SchemaSet, dict[str, str]]:
    """Return every schema by its record's name, and the topic of each record that names it.

    Of two schemas of one name, the product's stands, then that of the plugin that comes first by name. A plugin that cannot be loaded, or a
    job that needs options, is left out: `validator plugins list` shows its problem.
    """
    sets = [schemas()]
    topics: dict[str, str] = {}
    definitions = _protocols()
    for definition in definitions:
        sets.append(schemas_of(definition.schemas))
        topics.update((record.schema, record.topic) for record in definition.records)
    for job in installed_jobs(_chain_of_each(definitions)):
        sets += (form.format.schemas for form in job.forms.values())
        topics.update((form.format.schema.name, topic) for topic, form in job.forms.items())
    return _merged(sets), topics


def every_chain() -> Chains:
    """Return chains as a job's context has them, one of each installed protocol."""
    return _chain_of_each(_protocols())


def installed_jobs(chains: Chains) -> list[Job]:
    """Return the installed jobs, by name, on such chains and without options; one that needs options is left out."""
    found: list[Job] = []
    for name in sorted({entry.name for entry in entry_points(group=JOBS)}):
        with suppress(UserError):
            found.append(open_job(JobContext(name, chains=chains)))
    return found


def _protocols() -> list[ProtocolDefinition]:
    return [definition for plugin in load_all(discover(PROTOCOLS))[0] for definition in protocols_of(plugin)]


def _chain_of_each(definitions: Iterable[ProtocolDefinition]) -> Chains:
    return {each.name: {"protocol": each.name, "limits": {}} for each in definitions}


def _merged(sets: Iterable[SchemaSet]) -> SchemaSet:
    versions: dict[str, tuple[Schema, ...]] = {}
    for each in sets:
        versions |= {name: found for name, found in each.versions.items() if name not in versions}
    return SchemaSet(versions)


def configured_job(config: Config, name: str) -> Job:
    """Return a plugin's job for a configuration. Raises `UserError`."""
    chains = {
        lane: {"protocol": chain.protocol, "limits": chain.limit_tables()} for lane, chain in config.chains.items()
    }
    return open_job(JobContext(name, config.jobs.get(name, {}), chains))


def of_job(config: Config, name: str) -> Config:
    """Return the configuration with a separate folder for a plugin's job: below that of the lanes' job."""
    directory = job_directory(config) / "jobs" / name
    return config.model_copy(update={"job": config.job.model_copy(update={"directory": str(directory)})})


def create_job_topics(config: Config, job: Job) -> dict[str, bool]:
    """Create the missing topics of a job, as many partitions as output topics have. Raises `UserError`."""
    topics = config.topics
    return create_topics(
        config.kafka,
        prefix=topics.prefix,
        partitions=topics.input_partitions,
        output_partitions=topics.output_partitions,
        replication_factor=topics.replication_factor,
        topics=job.topics,
    )
