# SPDX-License-Identifier: Apache-2.0
"""The jobs of plugins as the configuration describes them, and their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.kafka.topics import create_topics
from validator.lanes.configured import job_directory
from validator.plugin.job_api import Job, JobContext, open_job

if TYPE_CHECKING:
    from validator.config import Config


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
